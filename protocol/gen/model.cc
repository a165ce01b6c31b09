#include "protocol/gen/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace smolvm::gen {
namespace pb = google::protobuf;

namespace {

std::string Trim(const std::string& text) {
  const auto begin = text.find_first_not_of(" \t\r");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) {
    if (!Trim(part).empty()) parts.push_back(Trim(part));
  }
  return parts;
}

// "const void *src" → {"const void*", "src"}. Parameter lists of the driver API hold no function
// types and no commas inside a parameter.
Param ParseParam(const std::string& text) {
  const size_t name =
      text.find_last_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") + 1;
  std::string type = Trim(text.substr(0, name));
  for (size_t space; (space = type.find(" *")) != std::string::npos;) type.erase(space, 1);
  return {type, text.substr(name)};
}

std::vector<Field> Fields(const pb::Descriptor& message) {
  std::vector<Field> fields;
  for (int i = 0; i < message.field_count(); ++i) {
    fields.push_back({message.field(i), message.field(i)->options().GetExtension(api::field)});
  }
  return fields;
}

const Field* Find(const std::vector<Field>& fields, const std::string& name) {
  for (const Field& field : fields) {
    if (field.name() == name) return &field;
  }
  return nullptr;
}

bool IsDeviceAddress(const CallModel& call, const Field& field) {
  return std::any_of(call.params.begin(), call.params.end(), [&](const Param& param) {
    return param.name == field.name() && param.type == "CUdeviceptr*";
  });
}

// What a session takes of the device's memory is counted (--memory-limit), so that a call may not
// leave open what it takes.
std::string WhyUncounted(const CallModel& call) {
  for (const Field& field : call.reply_fields) {
    const bool mints = !field.options.mints_memory().empty();
    if (IsDeviceAddress(call, field) && mints == field.options.names_memory())
      return "result " + field.name() + " either mints memory or names some that is there";
    if (mints && call.by_hand_on_host()) continue;
    if (mints && call.NeedsResults(field.options.mints_memory()) &&
        (field.options.mints_at_least().empty() ||
         call.NeedsResults(field.options.mints_at_least())))
      return "result " + field.name() +
             " mints memory that cannot be counted before: say mints_at_least";
    const bool code = field.options.mints() && (field.options.handle() == api::MODULE ||
                                                field.options.handle() == api::LIBRARY);
    if (code && !call.by_hand_on_host())
      return "what loads code is served by hand on the host, which counts its variables";
  }
  return "";
}

// Every parameter must be accounted for, or be somebody's explicit business.
void Check(const CallModel& call) {
  const auto fail = [&](const std::string& why) {
    throw std::runtime_error(call.name + ": " + why);
  };
  if (call.local() && call.options.handwritten() != api::GUEST)
    fail("a LOCAL call is written by hand in the guest");
  if (call.local() && (!call.request_fields.empty() || !call.reply_fields.empty())) {
    fail("a LOCAL call has no messages");
  }
  if (!call.by_hand_in_guest()) {
    for (const Param& param : call.params) {
      const bool in = call.request_field(param.name), out = call.reply_field(param.name);
      if (in == out)
        fail("parameter " + param.name +
             " must be in the request or in the reply, and not in both");
      if (out && !param.pointer()) fail("result " + param.name + " is not a pointer");
    }
  }
  for (const Field& field : call.request_fields) {
    const bool param = std::any_of(call.params.begin(), call.params.end(),
                                   [&](const Param& p) { return p.name == field.name(); });
    if (!param && !call.by_hand_in_guest()) fail("field " + field.name() + " names no parameter");
  }
  if (const std::string why = WhyUncounted(call); !why.empty()) fail(why);
}

CallModel BuildCall(const pb::MethodDescriptor& method, const std::string& section,
                    const std::set<std::string>& exports) {
  CallModel call;
  call.name = method.name();
  call.section = section;
  call.options = method.options().GetExtension(api::call);
  for (const std::string& text : Split(call.options.c(), ',')) {
    if (text != "void") call.params.push_back(ParseParam(text));
  }
  call.request = method.input_type()->name();
  call.reply = method.output_type()->name();
  call.request_fields = Fields(*method.input_type());
  call.reply_fields = Fields(*method.output_type());
  for (const char* suffix : {"_ptds", "_ptsz"}) {
    if (exports.contains(call.name + suffix)) call.variant = suffix;
  }
  call.legacy = Split(call.options.legacy(), ',');
  for (const std::string& symbol : call.legacy) {
    if (!exports.contains(symbol))
      throw std::runtime_error(call.name + ": the driver exports no " + symbol);
  }
  if (!exports.contains(call.name))
    throw std::runtime_error(call.name + ": the driver exports no such symbol");
  Check(call);
  return call;
}

void CheckIds(const Model& model, const std::string& lock_path) {
  std::map<std::string, uint32_t> locked;
  for (const std::string& line : ReadLines(lock_path)) {
    std::istringstream stream(line);
    std::string id, name;
    stream >> id >> name;
    locked[name] = static_cast<uint32_t>(std::stoul(id, nullptr, 16));
  }
  std::map<uint32_t, std::string> seen;
  for (const auto& [name, id] : locked) {
    if (!seen.emplace(id, name).second)
      throw std::runtime_error("call_ids.lock: an id is there twice: " + name);
  }
  for (const CallModel* call : model.calls()) {
    const auto entry = locked.find(call->name);
    if (entry == locked.end()) {
      throw std::runtime_error(fmt::format(
          "{0}: add the line '{1} {0}' to protocol/api/call_ids.lock", call->name, call->id()));
    }
    if (entry->second != call->options.id()) {
      throw std::runtime_error(call->name +
                               ": its id differs from the one in protocol/api/call_ids.lock");
    }
  }
}

}  // namespace

std::string Param::pointee() const {
  std::string base = type;
  if (base.ends_with('*')) base.pop_back();
  if (base.starts_with("const ")) base.erase(0, 6);
  return base;
}

const Field* CallModel::request_field(const std::string& param) const {
  return Find(request_fields, param);
}
const Field* CallModel::reply_field(const std::string& param) const {
  return Find(reply_fields, param);
}
std::string CallModel::id() const { return fmt::format("0x{:04x}", options.id()); }

std::string CallModel::declaration() const {
  std::string text;
  for (const Param& param : params)
    text += (text.empty() ? "" : ", ") + param.type + " " + param.name;
  return text;
}

std::string CallModel::param_names() const {
  std::string text;
  for (const Param& param : params) text += (text.empty() ? "" : ", ") + param.name;
  return text;
}

bool CallModel::NeedsResults(const std::string& expression) const {
  return std::any_of(reply_fields.begin(), reply_fields.end(), [&](const Field& field) {
    for (size_t at = expression.find(field.name()); at != std::string::npos;
         at = expression.find(field.name(), at + 1)) {
      const size_t end = at + field.name().size();
      const auto in_word = [&](size_t i) {
        return i < expression.size() &&
               (isalnum(static_cast<unsigned char>(expression[i])) || expression[i] == '_');
      };
      if (!(at > 0 && in_word(at - 1)) && !in_word(end)) return true;
    }
    return false;
  });
}

std::string CallModel::more_declaration() const {
  return params.empty() ? "" : ", " + declaration();
}
std::string CallModel::more_param_names() const {
  return params.empty() ? "" : ", " + param_names();
}

std::vector<const CallModel*> Model::calls() const {
  std::vector<const CallModel*> all;
  for (const Section& section : sections) {
    for (const CallModel& call : section.calls) all.push_back(&call);
  }
  return all;
}

std::vector<std::string> ReadLines(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    line = Trim(line);
    if (!line.empty() && line[0] != '#') lines.push_back(line);
  }
  return lines;
}

std::set<std::string> ReadNativeSymbols(const std::string& folder) {
  static const std::string kMark = "SMOLVM_API ";
  std::set<std::string> symbols;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".cc") continue;
    for (const std::string& line : ReadLines(entry.path())) {
      if (line.starts_with(kMark))
        symbols.insert(line.substr(kMark.size(), line.find('(') - kMark.size()));
    }
  }
  if (symbols.empty()) throw std::runtime_error(folder + " defines no function");
  return symbols;
}

Model BuildModel(const std::vector<const pb::FileDescriptor*>& files,
                 const std::string& exports_path, const std::string& lock_path) {
  Model model;
  for (const std::string& symbol : ReadLines(exports_path)) model.exports.insert(symbol);
  for (const pb::FileDescriptor* file : files) {
    if (file->service_count() == 0) continue;
    std::string name = file->name().substr(file->name().rfind('/') + 1);
    Section section{name.substr(0, name.size() - 6), file, {}};
    const pb::ServiceDescriptor& service = *file->service(0);
    for (int i = 0; i < service.method_count(); ++i) {
      section.calls.push_back(BuildCall(*service.method(i), section.name, model.exports));
    }
    model.sections.push_back(std::move(section));
  }
  CheckIds(model, lock_path);
  return model;
}

std::string Widen(const CallModel& call, const std::string& expression) {
  std::string out;
  for (size_t i = 0; i < expression.size();) {
    const auto word_char = [&](size_t at) {
      return at < expression.size() &&
             (isalnum(static_cast<unsigned char>(expression[at])) || expression[at] == '_');
    };
    size_t end = i;
    while (word_char(end)) ++end;
    if (end == i) {
      out += expression[i++];
      continue;
    }
    const std::string word = expression.substr(i, end - i);
    const Field* field = call.request_field(word);
    out += field ? "Wide(" + word + ")" : word;
    i = end;
  }
  return out;
}

std::string Banner() { return "// Generated from protocol/api by protocol/gen. Do not edit.\n"; }

}  // namespace smolvm::gen
