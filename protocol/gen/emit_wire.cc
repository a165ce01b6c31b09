// Messages → plain structs, and their protobuf encoders and decoders on protozero's bounded reader.
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "protocol/gen/model.h"

namespace smolvm::gen {
namespace pb = google::protobuf;
using FD = pb::FieldDescriptor;

namespace {

// How one protobuf type is spelt in C++ and on the wire.
struct Codec {
  const char* cpp;
  const char* method;     // protozero: get_<method>, add_<method>
  const char* wire_type;  // protozero::pbf_wire_type::<wire_type>
};

Codec CodecOf(const FD& field) {
  switch (field.type()) {
    case FD::TYPE_UINT32:
      return {"uint32_t", "uint32", "varint"};
    case FD::TYPE_UINT64:
      return {"uint64_t", "uint64", "varint"};
    case FD::TYPE_INT32:
      return {"int32_t", "int32", "varint"};
    case FD::TYPE_INT64:
      return {"int64_t", "int64", "varint"};
    case FD::TYPE_BOOL:
      return {"bool", "bool", "varint"};
    case FD::TYPE_FLOAT:
      return {"float", "float", "fixed32"};
    case FD::TYPE_DOUBLE:
      return {"double", "double", "fixed64"};
    case FD::TYPE_STRING:
      return {"std::string", "string", "length_delimited"};
    case FD::TYPE_BYTES:
      return {"std::string", "bytes", "length_delimited"};
    case FD::TYPE_MESSAGE:
      return {nullptr, "message", "length_delimited"};
    default:
      throw std::runtime_error(field.full_name() + ": a field of this type is not generated");
  }
}

std::string CppType(const FD& field) {
  const std::string base =
      field.type() == FD::TYPE_MESSAGE ? field.message_type()->name() : CodecOf(field).cpp;
  return field.is_repeated() ? "std::vector<" + base + ">" : base;
}

bool Packed(const FD& field) { return field.is_repeated() && field.is_packable(); }

std::string EncodeField(const FD& field) {
  const Codec codec = CodecOf(field);
  const std::string name = field.name();
  if (field.type() == FD::TYPE_MESSAGE) {
    const std::string body =
        fmt::format("{{ protozero::pbf_writer sub{{writer, {}}}; Put({}, sub); }}", field.number(),
                    field.is_repeated() ? "item" : "m." + name);
    return field.is_repeated() ? fmt::format("  for (const auto& item : m.{}) {}\n", name, body)
                               : "  " + body + "\n";
  }
  if (Packed(field)) {
    return fmt::format(
        "  if (!m.{0}.empty()) writer.add_packed_{1}({2}, m.{0}.begin(), m.{0}.end());\n", name,
        codec.method, field.number());
  }
  if (field.is_repeated()) {
    return fmt::format("  for (const auto& item : m.{}) writer.add_{}({}, item);\n", name,
                       codec.method, field.number());
  }
  const bool text = field.type() == FD::TYPE_STRING || field.type() == FD::TYPE_BYTES;
  return fmt::format("  if ({}) writer.add_{}({}, m.{});\n",
                     text ? "!m." + name + ".empty()" : "m." + name, codec.method, field.number(),
                     name);
}

std::string DecodeField(const FD& field) {
  const Codec codec = CodecOf(field);
  const std::string name = field.name();
  const auto when = [&](const char* wire_type, const std::string& body) {
    return fmt::format(
        "      case protozero::tag_and_type({}, protozero::pbf_wire_type::{}):\n        {}\n       "
        " break;\n",
        field.number(), wire_type, body);
  };
  if (field.type() == FD::TYPE_MESSAGE) {
    const std::string target =
        field.is_repeated() ? fmt::format("m->{}.emplace_back();", name) : "";
    const std::string object =
        field.is_repeated() ? fmt::format("&m->{}.back()", name) : "&m->" + name;
    return when(codec.wire_type, fmt::format("{} Get(reader.get_message(), {});", target, object));
  }
  if (Packed(field)) {
    return when("length_delimited",
                fmt::format(
                    "for (const auto value : reader.get_packed_{0}()) m->{1}.push_back(value);",
                    codec.method, name)) +
           when(codec.wire_type,
                fmt::format("m->{}.push_back(reader.get_{}());", name, codec.method));
  }
  const std::string value = fmt::format("reader.get_{}()", codec.method);
  return when(codec.wire_type, field.is_repeated()
                                   ? fmt::format("m->{}.push_back({});", name, value)
                                   : fmt::format("m->{} = {};", name, value));
}

}  // namespace

std::string EmitWireHeader(const pb::FileDescriptor& file) {
  std::string text = Banner() +
                     "#pragma once\n#include <cstdint>\n#include <span>\n#include "
                     "<string>\n#include <string_view>\n"
                     "#include <vector>\n";
  for (int i = 0; i < file.dependency_count(); ++i) {
    std::string name = file.dependency(i)->name();
    if (name.ends_with("none.proto")) text += "#include \"protocol/api/none.wire.h\"\n";
  }
  text += "\nnamespace smolvm::api {\n\n";
  for (int i = 0; i < file.message_type_count(); ++i) {
    const pb::Descriptor& message = *file.message_type(i);
    text += "struct " + message.name() + ";\n";
  }
  // In dependency order: a message is declared before those that hold it; the specification has no
  // cycles.
  std::vector<const pb::Descriptor*> order;
  for (int pass = 0; pass < file.message_type_count() + 1; ++pass) {
    for (int i = 0; i < file.message_type_count(); ++i) {
      const pb::Descriptor* message = file.message_type(i);
      bool ready = std::find(order.begin(), order.end(), message) == order.end();
      for (int k = 0; k < message->field_count() && ready; ++k) {
        const pb::Descriptor* inner = message->field(k)->message_type();
        ready = !inner || std::find(order.begin(), order.end(), inner) != order.end();
      }
      if (ready) order.push_back(message);
    }
  }
  for (const pb::Descriptor* message : order) {
    text += "\nstruct " + message->name() + " {\n";
    for (int k = 0; k < message->field_count(); ++k) {
      const FD& field = *message->field(k);
      const bool scalar = !field.is_repeated() && field.type() != FD::TYPE_MESSAGE &&
                          field.type() != FD::TYPE_STRING && field.type() != FD::TYPE_BYTES;
      text += fmt::format("  {} {}{};\n", CppType(field), field.name(), scalar ? " = {}" : "");
    }
    text += fmt::format(
        "}};\n// Appends. Decode: false when the bytes are malformed; fields that are unknown are "
        "skipped.\n"
        "void Encode(const {0}& message, std::string* out);\nbool Decode(std::span<const char> "
        "bytes, {0}* message);\n",
        message->name());
  }
  return text + "\n}  // namespace smolvm::api\n";
}

std::string EmitWireSource(const pb::FileDescriptor& file) {
  std::string text =
      Banner() +
      fmt::format(
          "#include \"{}.wire.h\"\n\n#include <protozero/pbf_reader.hpp>\n"
          "#include <protozero/pbf_writer.hpp>\n\nnamespace smolvm::api {{\nnamespace {{\n\n",
          file.name().substr(0, file.name().size() - 6));
  for (int i = 0; i < file.message_type_count(); ++i) {
    const std::string name = file.message_type(i)->name();
    text += fmt::format(
        "[[maybe_unused]] void Put(const {0}& m, protozero::pbf_writer& writer);\n"
        "[[maybe_unused]] void Get(protozero::pbf_reader reader, {0}* m);\n",
        name);
  }
  for (int i = 0; i < file.message_type_count(); ++i) {
    const pb::Descriptor& message = *file.message_type(i);
    text += fmt::format(
        "\nvoid Put([[maybe_unused]] const {}& m, [[maybe_unused]] protozero::pbf_writer& writer) "
        "{{\n",
        message.name());
    for (int k = 0; k < message.field_count(); ++k) text += EncodeField(*message.field(k));
    text += fmt::format(
        "}}\n\nvoid Get(protozero::pbf_reader reader, [[maybe_unused]] {}* m) {{\n  while "
        "(reader.next()) {{\n"
        "    switch (reader.tag_and_type()) {{\n",
        message.name());
    for (int k = 0; k < message.field_count(); ++k) text += DecodeField(*message.field(k));
    text += "      default:\n        reader.skip();\n    }\n  }\n}\n";
  }
  text += "\n}  // namespace\n";
  for (int i = 0; i < file.message_type_count(); ++i) {
    text += fmt::format(
        "\nvoid Encode(const {0}& message, std::string* out) {{\n  protozero::pbf_writer "
        "writer{{*out}};\n"
        "  Put(message, writer);\n}}\n\nbool Decode(std::span<const char> bytes, {0}* message) "
        "{{\n  try {{\n"
        "    Get(protozero::pbf_reader(bytes.data(), bytes.size()), message);\n    return true;\n"
        "  }} catch (const std::exception&) {{\n    return false;\n  }}\n}}\n",
        file.message_type(i)->name());
  }
  return text + "\n}  // namespace smolvm::api\n";
}

std::string EmitCodecTable(const std::vector<const pb::FileDescriptor*>& files) {
  std::string includes, rows;
  for (const pb::FileDescriptor* file : files) {
    const std::string stem = file->name().substr(0, file->name().size() - 6);
    if (stem.ends_with("call_options")) continue;
    includes += fmt::format("#include \"{}.wire.h\"\n", stem);
    for (int i = 0; i < file->message_type_count(); ++i) {
      rows += fmt::format("    {{\"{0}\", Recode<api::{1}>}},\n",
                          file->message_type(i)->full_name(), file->message_type(i)->name());
    }
  }
  return Banner() + "#pragma once\n" + includes +
         "\nnamespace smolvm::codec {\n\n"
         "// For tests: decodes and encodes again. False when the bytes are refused.\n"
         "template <typename Message>\nbool Recode(std::span<const char> bytes, std::string* out) "
         "{\n"
         "  Message message;\n  if (!Decode(bytes, &message)) return false;\n  Encode(message, "
         "out);\n"
         "  return true;\n}\n\nstruct Row {\n  const char* name;\n"
         "  bool (*recode)(std::span<const char> bytes, std::string* out);\n};\n\n"
         "inline constexpr Row kRows[] = {\n" +
         rows + "};\n\n}  // namespace smolvm::codec\n";
}

}  // namespace smolvm::gen
