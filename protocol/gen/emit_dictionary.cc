// Fuzzing: what a session's bytes are made of, as a dictionary for libFuzzer (one quoted string a
// line, 64 bytes at most).
#include <fmt/format.h>

#include <cstring>

#include "protocol/gen/model.h"
#include "protocol/wire/frame.h"

namespace smolvm::gen {
namespace {

using google::protobuf::FieldDescriptor;

template <typename T>
std::string Bytes(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

std::string Word(const std::string& name, const std::string& bytes) {
  std::string line = name + "=\"";
  for (const char c : bytes) line += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return line + "\"\n";
}

// A whole frame without arguments and bulk: the step from noise to a call.
std::string Frame(uint32_t id) {
  wire::FrameHeader header;
  header.call_id = id;
  header.sequence = header.lane_or_status = 1;
  return Bytes(header);
}

// A field's tag (protobuf encoding: number and wire type), which is one byte up to number 15.
std::string Tag(const FieldDescriptor& field) {
  unsigned wire_type = 0;
  switch (field.type()) {
    case FieldDescriptor::TYPE_STRING:
    case FieldDescriptor::TYPE_BYTES:
    case FieldDescriptor::TYPE_MESSAGE:
      wire_type = 2;
      break;
    case FieldDescriptor::TYPE_DOUBLE:
    case FieldDescriptor::TYPE_FIXED64:
      wire_type = 1;
      break;
    case FieldDescriptor::TYPE_FLOAT:
    case FieldDescriptor::TYPE_FIXED32:
      wire_type = 5;
      break;
    default:
      break;
  }
  if (field.is_packed()) wire_type = 2;
  std::string tag;
  for (unsigned value = static_cast<unsigned>(field.number()) << 3 | wire_type;; value >>= 7) {
    tag += static_cast<char>(value > 127 ? value | 128 : value);
    if (value <= 127) return tag;
  }
}

}  // namespace

std::string EmitDictionary(const Model& model) {
  std::string text = "# Generated from protocol/api by protocol/gen. Do not edit.\n";
  std::map<std::string, std::string> words;  // by their bytes: each once
  for (uint32_t id = 1; id <= wire::kGoodbye; ++id)
    text += Word(fmt::format("control_{}", id), Frame(id));
  for (const CallModel* call : model.calls()) {
    if (call->local()) continue;
    text += Word("frame_" + call->name, Frame(call->options.id()));
    if (call->options.max_bulk() != 0)
      words.try_emplace(Bytes(uint64_t{call->options.max_bulk()}), "max_bulk");
    for (const Field& field : call->request_fields)
      words.try_emplace(Tag(*field.descriptor),
                        "field_" + std::to_string(field.descriptor->number()));
  }
  words.try_emplace(Bytes(wire::kMaxArgsBytes), "max_args");
  for (const uint32_t flag :
       {wire::kFlagNoReply, wire::kFlagPerThreadStream, wire::kFlagMore, wire::kFlagReply})
    words.try_emplace(Bytes(flag), "flag");
  words.try_emplace(std::string(4, '\xff'), "all_32_bits");
  words.try_emplace(std::string(8, '\xff'), "all_64_bits");
  words.try_emplace(std::string(9, '\xff') + '\x01', "largest_varint");
  // Ids of handles are kind | generation | index: the first ones that a session gives out.
  for (uint64_t kind = 1; kind <= 9; ++kind) words.try_emplace(Bytes(kind << 56), "handle");
  size_t number = 0;
  for (const auto& [bytes, name] : words) text += Word(fmt::format("{}_{}", name, ++number), bytes);
  return text;
}

}  // namespace smolvm::gen
