#include "machine/wire/messages.h"

#include <nlohmann/json.hpp>
#include <stdexcept>

namespace smolvm::machine {
namespace {

void PutList(std::string* out, const std::vector<std::string>& list) {
  PutU32(out, list.size());
  for (const std::string& item : list) PutString(out, item);
}

std::vector<std::string> ReadList(FieldReader* reader) {
  std::vector<std::string> list;
  // A string takes four bytes at least, so a count cannot make more of them than bytes arrived.
  const uint32_t count = reader->U32();
  for (uint32_t i = 0; i < count && reader->ok(); ++i) list.push_back(reader->String());
  return list;
}

// The library would take any number there, also one that an unsigned has no place for.
uint32_t PortIn(const nlohmann::json& number) {
  if (!number.is_number_unsigned() || number.get<uint64_t>() > UINT32_MAX)
    throw std::invalid_argument("the port is no number of 32 bits");
  return number.get<uint32_t>();
}

}  // namespace

std::string EncodeHello(const Hello& hello) {
  std::string out;
  PutString(&out, hello.secret);
  PutString(&out, hello.kind);
  PutString(&out, hello.argument);
  return out;
}

std::optional<Hello> DecodeHello(std::string_view payload) {
  FieldReader reader(payload);
  Hello hello;
  hello.secret = reader.String();
  hello.kind = reader.String();
  hello.argument = reader.String();
  if (!reader.Complete()) return std::nullopt;
  return hello;
}

std::string EncodeExec(const ExecRequest& request) {
  std::string out;
  PutList(&out, request.argv);
  PutList(&out, request.env);
  PutString(&out, request.workdir);
  PutString(&out, request.user);
  PutU32(&out,
         (request.stdin_open ? 1 : 0) | (request.tty ? 2 : 0) | (request.make_workdir ? 4 : 0));
  PutU32(&out, request.rows);
  PutU32(&out, request.columns);
  return out;
}

std::optional<ExecRequest> DecodeExec(std::string_view payload) {
  FieldReader reader(payload);
  ExecRequest request;
  request.argv = ReadList(&reader);
  request.env = ReadList(&reader);
  request.workdir = reader.String();
  request.user = reader.String();
  const uint32_t flags = reader.U32();
  request.stdin_open = flags & 1;
  request.tty = flags & 2;
  request.make_workdir = flags & 4;
  request.rows = reader.U32();
  request.columns = reader.U32();
  if (!reader.Complete() || request.argv.empty() || flags > 7) return std::nullopt;
  return request;
}

std::string EncodeExit(const ExitReport& report) {
  std::string out;
  PutU32(&out, static_cast<uint32_t>(report.kind));
  PutU32(&out, report.value);
  PutString(&out, report.message);
  return out;
}

std::optional<ExitReport> DecodeExit(std::string_view payload) {
  FieldReader reader(payload);
  ExitReport report;
  const uint32_t kind = reader.U32();
  report.value = reader.U32();
  report.message = reader.String();
  if (!reader.Complete() || kind > static_cast<uint32_t>(ExitKind::kNotFound)) return std::nullopt;
  report.kind = static_cast<ExitKind>(kind);
  return report;
}

std::string EncodeConfig(const GuestConfig& config) {
  nlohmann::json shares = nlohmann::json::array();
  for (const GuestShare& share : config.shares) {
    shares.push_back(
        {{"path", share.path}, {"read_only", share.read_only}, {"is_file", share.is_file}});
  }
  const nlohmann::json json = {{"secret", config.secret},
                               {"port", config.port},
                               {"hostname", config.hostname},
                               {"net", config.net},
                               {"persistent", config.persistent},
                               {"cuda", config.cuda},
                               {"shares", shares},
                               {"modules", config.modules}};
  return json.dump();
}

GuestConfig DecodeConfig(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text);
  GuestConfig config;
  json.at("secret").get_to(config.secret);
  config.port = PortIn(json.at("port"));
  json.at("hostname").get_to(config.hostname);
  json.at("net").get_to(config.net);
  json.at("persistent").get_to(config.persistent);
  json.at("cuda").get_to(config.cuda);
  json.at("modules").get_to(config.modules);
  for (const auto& share : json.at("shares")) {
    config.shares.push_back({share.at("path"), share.at("read_only"), share.at("is_file")});
  }
  return config;
}

}  // namespace smolvm::machine
