#include "container/cdi_spec.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <exception>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

namespace smolvm::gpu {
namespace {

// Takes the events of either parser and keeps the kind and the device names. A map's keys and
// values arrive alternately, as both parsers deliver them.
class SpecCollector {
 public:
  // Each returns false when parsing should stop, with error() set.
  bool Scalar(std::string_view text) {
    if (frames_.empty()) return Fail("not a mapping");
    Frame& frame = frames_.back();
    if (frame.role == Role::kTop && frame.awaits_key) {
      key_ = text == "kind" ? Key::kKind : text == "devices" ? Key::kDevices : Key::kOther;
    } else if (frame.role == Role::kDevice && frame.awaits_key) {
      key_ = text == "name" ? Key::kName : Key::kOther;
    } else if (frame.role == Role::kTop && key_ == Key::kKind) {
      spec_.kind = text;
    } else if (frame.role == Role::kDevice && key_ == Key::kName) {
      spec_.devices.emplace_back(text);
    }
    return Next(frame);
  }

  // A value of no interest: null, a number, an alias of something else than a scalar.
  bool Opaque() {
    if (frames_.empty()) return Fail("not a mapping");
    if (frames_.back().awaits_key) key_ = Key::kOther;
    return Next(frames_.back());
  }

  bool StartMap() {
    if (frames_.empty()) return Push(Role::kTop, true);
    return Push(frames_.back().role == Role::kDevices ? Role::kDevice : Role::kOther, true);
  }

  bool StartSequence() {
    if (frames_.empty()) return Fail("not a mapping");
    const Frame& frame = frames_.back();
    const bool devices = frame.role == Role::kTop && !frame.awaits_key && key_ == Key::kDevices;
    return Push(devices ? Role::kDevices : Role::kOther, false);
  }

  bool End() {
    frames_.pop_back();
    if (frames_.empty()) return true;
    key_ = Key::kOther;  // whatever key led into what ended here has its value now
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
  enum class Role { kTop, kDevices, kDevice, kOther };
  enum class Key { kKind, kDevices, kName, kOther };
  struct Frame {
    Role role;
    bool is_map;
    bool awaits_key;
  };

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
  Key key_ = Key::kOther;  // the last key of the innermost map that has a role
  CdiSpec spec_;
  std::string error_;
};

// The names are nlohmann's. Its parser keeps its own stack on the heap, so depth is no danger.
class JsonEvents : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit JsonEvents(SpecCollector& out) : out_(out) {}
  bool null() override { return out_.Opaque(); }
  bool boolean(bool) override { return out_.Opaque(); }
  bool number_integer(number_integer_t) override { return out_.Opaque(); }
  bool number_unsigned(number_unsigned_t) override { return out_.Opaque(); }
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
