#include "container/cdi_spec.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

namespace smolvm::gpu {
namespace {

constexpr std::size_t kMostLateFields = 8;

// What a collection is in the format, by where it stands.
enum class Role {
  kTop,
  kDevices,
  kDevice,
  kEdits,  // containerEdits, of a device or of all
  kNodes,
  kNode,
  kMounts,
  kMount,
  kHooks,
  kHook,
  kOther,
};

struct Member {
  Role in;
  std::string_view key;
  Role role;  // of the collection that it leads to
};

// Every field of CDI 0.5.0.
constexpr Member kMembers[] = {
    {Role::kTop, "cdiVersion", Role::kOther},
    {Role::kTop, "kind", Role::kOther},
    {Role::kTop, "devices", Role::kDevices},
    {Role::kTop, "containerEdits", Role::kEdits},
    {Role::kDevice, "name", Role::kOther},
    {Role::kDevice, "containerEdits", Role::kEdits},
    {Role::kEdits, "env", Role::kOther},
    {Role::kEdits, "deviceNodes", Role::kNodes},
    {Role::kEdits, "mounts", Role::kMounts},
    {Role::kEdits, "hooks", Role::kHooks},
    {Role::kNode, "path", Role::kOther},
    {Role::kNode, "hostPath", Role::kOther},
    {Role::kNode, "type", Role::kOther},
    {Role::kNode, "major", Role::kOther},
    {Role::kNode, "minor", Role::kOther},
    {Role::kNode, "fileMode", Role::kOther},
    {Role::kNode, "permissions", Role::kOther},
    {Role::kNode, "uid", Role::kOther},
    {Role::kNode, "gid", Role::kOther},
    {Role::kMount, "hostPath", Role::kOther},
    {Role::kMount, "containerPath", Role::kOther},
    {Role::kMount, "options", Role::kOther},
    {Role::kMount, "type", Role::kOther},
    {Role::kHook, "hookName", Role::kOther},
    {Role::kHook, "path", Role::kOther},
    {Role::kHook, "args", Role::kOther},
    {Role::kHook, "env", Role::kOther},
    {Role::kHook, "timeout", Role::kOther},
};

const Member* FindMember(Role in, std::string_view key) {
  for (const Member& member : kMembers) {
    if (member.in == in && member.key == key) return &member;
  }
  return nullptr;
}

// What the elements of a list are.
Role ElementOf(Role list) {
  switch (list) {
    case Role::kDevices:
      return Role::kDevice;
    case Role::kNodes:
      return Role::kNode;
    case Role::kMounts:
      return Role::kMount;
    case Role::kHooks:
      return Role::kHook;
    default:
      return Role::kOther;
  }
}

bool IsList(Role role) { return ElementOf(role) != Role::kOther; }

// The path that a device node, mount or hook needs on the host; "" when it needs none. `fields`:
// its scalars.
std::string NeedOf(Role role, const std::map<std::string, std::string, std::less<>>& fields) {
  const auto field = [&](std::string_view key) {
    const auto found = fields.find(key);
    return found == fields.end() ? std::string() : found->second;
  };
  std::string path = field("path");
  if (role == Role::kNode) {
    // With its numbers given, podman does not look at the host's node.
    if (!field("type").empty() && !field("major").empty() && field("major") != "0") return "";
    if (!field("hostPath").empty()) path = field("hostPath");
  } else if (role == Role::kMount) {
    const std::string type = field("type");
    path = type.empty() || type == "bind" || type == "none" ? field("hostPath") : "";
  }
  return path.starts_with('/') ? path : "";
}

// Takes the events of either parser and keeps what CdiSpec holds. A map's keys and values arrive
// alternately, as both parsers deliver them.
class SpecCollector {
 public:
  // Each returns false when parsing should stop, with error() set.
  bool Scalar(std::string_view text) {
    if (frames_.empty()) return Fail("not a mapping");
    Frame& frame = frames_.back();
    if (frame.awaits_key) {
      TakeKey(frame, text);
    } else if (frame.is_map) {
      TakeValue(frame, text);
    }
    return Next(frame);
  }

  // A number, where text is not meant: only a node's are of interest.
  bool Number(std::string_view text) {
    if (!frames_.empty() && frames_.back().role == Role::kNode) return Scalar(text);
    return Opaque();
  }

  // A value of no interest: null, an alias of something else than a scalar.
  bool Opaque() {
    if (frames_.empty()) return Fail("not a mapping");
    if (frames_.back().awaits_key) frames_.back().member = nullptr;
    return Next(frames_.back());
  }

  bool StartMap() {
    const Role role = RoleOfNext();
    if (role == Role::kDevice) spec_.devices.emplace_back();
    return Push(frames_.empty() ? Role::kTop : IsList(role) ? Role::kOther : role, true);
  }

  bool StartSequence() {
    if (frames_.empty()) return Fail("not a mapping");
    const Role role = RoleOfNext();
    return Push(IsList(role) ? role : Role::kOther, false);
  }

  bool End() {
    const Frame ended = std::move(frames_.back());
    frames_.pop_back();
    if (ended.role == Role::kNode || ended.role == Role::kMount || ended.role == Role::kHook) {
      AddNeed(NeedOf(ended.role, ended.fields));
    }
    if (ended.role == Role::kDevice && spec_.devices.back().name.empty()) spec_.devices.pop_back();
    if (frames_.empty()) return true;
    frames_.back().member = nullptr;  // whatever key led into what ended here has its value now
    return Next(frames_.back());
  }

  bool Fail(std::string why) {
    if (error_.empty()) error_ = std::move(why);
    return false;
  }

  CdiSpecOrError Take() {
    if (error_.empty() && spec_.kind.empty()) Fail("declares no kind");
    if (!error_.empty()) return {std::nullopt, error_};
    return {std::move(spec_), ""};
  }

 private:
  struct Frame {
    Role role;
    bool is_map;
    bool awaits_key;
    const Member* member = nullptr;  // the last key, where the format has it
    std::map<std::string, std::string, std::less<>> fields = {};  // of nodes, mounts and hooks
  };

  Role RoleOfNext() const {
    if (frames_.empty()) return Role::kTop;
    const Frame& frame = frames_.back();
    if (!frame.is_map) return ElementOf(frame.role);
    return frame.awaits_key || frame.member == nullptr ? Role::kOther : frame.member->role;
  }

  void TakeKey(Frame& frame, std::string_view text) {
    frame.member = FindMember(frame.role, text);
    if (frame.member != nullptr || frame.role == Role::kOther) return;
    std::vector<std::string>& late = spec_.late_fields;
    const std::string field(text);
    if (late.size() < kMostLateFields && std::find(late.begin(), late.end(), field) == late.end()) {
      late.push_back(field);
    }
  }

  void TakeValue(Frame& frame, std::string_view text) {
    if (frame.member == nullptr) return;
    const std::string_view key = frame.member->key;
    if (frame.role == Role::kTop && key == "kind") spec_.kind = text;
    if (frame.role == Role::kTop && key == "cdiVersion") spec_.version = text;
    if (frame.role == Role::kDevice && key == "name") spec_.devices.back().name = text;
    if (frame.role == Role::kNode || frame.role == Role::kMount || frame.role == Role::kHook) {
      frame.fields[std::string(key)] = text;
    }
  }

  void AddNeed(std::string path) {
    if (path.empty()) return;
    const bool of_device = std::any_of(frames_.begin(), frames_.end(), [](const Frame& frame) {
      return frame.role == Role::kDevice;
    });
    (of_device ? spec_.devices.back().needs : spec_.needs).push_back(std::move(path));
  }

  bool Push(Role role, bool is_map) {
    if (frames_.size() >= kDeepestCdiSpec) return Fail("nested too deeply");
    frames_.push_back({role, is_map, is_map});
    return true;
  }

  static bool Next(Frame& frame) {
    if (frame.is_map) frame.awaits_key = !frame.awaits_key;
    return true;
  }

  std::vector<Frame> frames_;
  CdiSpec spec_;
  std::string error_;
};

// The names are nlohmann's. Its parser keeps its own stack on the heap, so depth is no danger.
class JsonEvents : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit JsonEvents(SpecCollector& out) : out_(out) {}
  bool null() override { return out_.Opaque(); }
  bool boolean(bool) override { return out_.Opaque(); }
  bool number_integer(number_integer_t value) override {
    return out_.Number(std::to_string(value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    return out_.Number(std::to_string(value));
  }
  bool number_float(number_float_t, const string_t&) override { return out_.Opaque(); }
  bool string(string_t& value) override { return out_.Scalar(value); }
  bool binary(binary_t&) override { return out_.Opaque(); }
  bool start_object(std::size_t) override { return out_.StartMap(); }
  bool key(string_t& value) override { return out_.Scalar(value); }
  bool end_object() override { return out_.End(); }
  bool start_array(std::size_t) override { return out_.StartSequence(); }
  bool end_array() override { return out_.End(); }
  bool parse_error(std::size_t at, const std::string&, const nlohmann::json::exception&) override {
    return out_.Fail("not valid JSON at byte " + std::to_string(at));
  }

 private:
  SpecCollector& out_;
};

// Thrown out of yaml-cpp's parser, which has no other way to be stopped.
struct Stop {};

// Collections are never expanded where an alias names them, so that a document stays as large as
// its text; a scalar's alias stands for its text.
class YamlEvents : public YAML::EventHandler {
 public:
  explicit YamlEvents(SpecCollector& out) : out_(out) {}
  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override { Check(out_.Opaque()); }
  void OnAlias(const YAML::Mark&, YAML::anchor_t anchor) override {
    const auto scalar = scalars_.find(anchor);
    Check(scalar == scalars_.end() ? out_.Opaque() : out_.Scalar(scalar->second));
  }
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t anchor,
                const std::string& value) override {
    if (anchor != YAML::NullAnchor) scalars_[anchor] = value;
    Check(out_.Scalar(value));
  }
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    Check(out_.StartSequence());
  }
  void OnSequenceEnd() override { Check(out_.End()); }
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {
    Check(out_.StartMap());
  }
  void OnMapEnd() override { Check(out_.End()); }

 private:
  static void Check(bool go_on) {
    if (!go_on) throw Stop();
  }

  SpecCollector& out_;
  std::map<YAML::anchor_t, std::string> scalars_;
};

void ParseYaml(std::string_view text, SpecCollector& out) {
  std::istringstream stream{std::string(text)};
  YamlEvents events(out);
  try {
    YAML::Parser parser(stream);
    // Only the first document: a spec file holds one.
    if (!parser.HandleNextDocument(events)) out.Fail("empty");
  } catch (const Stop&) {
    // error() says why
  } catch (const YAML::Exception& error) {
    out.Fail("not valid YAML at line " + std::to_string(error.mark.line + 1));
  }
}

}  // namespace

std::vector<std::string> CdiSpec::Names() const {
  std::vector<std::string> names;
  names.reserve(devices.size());
  for (const CdiDevice& device : devices) names.push_back(device.name);
  return names;
}

std::optional<CdiFormat> CdiFormatOf(std::string_view file_name) {
  if (file_name.ends_with(".json")) return CdiFormat::kJson;
  if (file_name.ends_with(".yaml")) return CdiFormat::kYaml;
  return std::nullopt;
}

CdiSpecOrError ParseCdiSpec(std::string_view text, CdiFormat format) {
  SpecCollector collector;
  if (text.size() > kLargestCdiSpec) {
    collector.Fail("larger than " + std::to_string(kLargestCdiSpec) + " bytes");
    return collector.Take();
  }
  try {
    if (format == CdiFormat::kJson) {
      JsonEvents events(collector);
      nlohmann::json::sax_parse(text, &events);
    } else {
      ParseYaml(text, collector);
    }
  } catch (const std::exception& error) {  // out of memory, or a fault of a parser
    collector.Fail(error.what());
  }
  return collector.Take();
}

}  // namespace smolvm::gpu
