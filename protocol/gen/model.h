// The specification as the emitters see it: protoc's descriptors, with the C signatures taken
// apart.
#pragma once

#include <google/protobuf/descriptor.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "protocol/api/call_options.pb.h"

namespace smolvm::gen {

struct Param {
  std::string type;  // "CUdeviceptr*", "const char*", …
  std::string name;
  bool pointer() const { return type.ends_with('*'); }
  // What the pointer points to, without const.
  std::string pointee() const;
};

struct Field {
  const google::protobuf::FieldDescriptor* descriptor;
  api::FieldOptions options;
  std::string name() const { return descriptor->name(); }
  // A C structure carried as its bytes.
  bool pod() const { return descriptor->type() == google::protobuf::FieldDescriptor::TYPE_BYTES; }
  bool string() const {
    return descriptor->type() == google::protobuf::FieldDescriptor::TYPE_STRING;
  }
};

struct CallModel {
  std::string name;     // the exported symbol
  std::string section;  // "memory"
  api::CallOptions options;
  std::vector<Param> params;
  std::string request, reply;  // message names
  std::vector<Field> request_fields, reply_fields;
  // "_ptds" or "_ptsz" when the driver exports such a variant, else empty.
  std::string variant;
  std::vector<std::string> legacy;

  bool local() const { return options.mode() == api::LOCAL; }
  bool async() const { return options.mode() == api::ASYNC; }
  bool by_hand_in_guest() const { return options.handwritten() & api::GUEST; }
  bool by_hand_on_host() const { return options.handwritten() & api::HOST; }
  // Whether a C expression over the parameters is about results.
  bool NeedsResults(const std::string& expression) const;
  const Field* request_field(const std::string& param) const;
  const Field* reply_field(const std::string& param) const;
  std::string id() const;           // "0x0301"
  std::string declaration() const;  // "CUdeviceptr* dptr, size_t bytesize"
  std::string param_names() const;  // "dptr, bytesize"
  // With a leading separator when there is anything: for argument lists that begin with something
  // else.
  std::string more_declaration() const;
  std::string more_param_names() const;
};

struct Section {
  std::string name;
  const google::protobuf::FileDescriptor* file;
  std::vector<CallModel> calls;
};

struct Model {
  std::vector<Section> sections;
  std::set<std::string> exports;  // every symbol that the driver library exports

  std::vector<const CallModel*> calls() const;
};

// The functions that the sources in `folder` define with SMOLVM_API. Throws std::runtime_error.
std::set<std::string> ReadNativeSymbols(const std::string& folder);

// Lines of a text file, without comments (#) and blanks. Throws std::runtime_error.
std::vector<std::string> ReadLines(const std::string& path);

// Throws std::runtime_error that names the call when the specification contradicts itself, the
// export list or the lock of call ids.
Model BuildModel(const std::vector<const google::protobuf::FileDescriptor*>& files,
                 const std::string& exports_path, const std::string& lock_path);

// One function per output. Each returns the text of a file.
std::string EmitWireHeader(const google::protobuf::FileDescriptor& file);
std::string EmitWireSource(const google::protobuf::FileDescriptor& file);
std::string EmitCodecTable(
    const std::vector<const google::protobuf::FileDescriptor*>& files);  // tests
std::string EmitEntry(const Section& section);     // guest: exported functions
std::string EmitGuestManual(const Model& model);   // guest: what is written by hand
std::string EmitDispatch(const Section& section);  // host: decode, call, encode
std::string EmitHostManual(const Model& model);    // host: what is written by hand
std::string EmitDispatchTable(const Model& model);
std::string EmitCallIds(const Model& model);
std::string EmitDriverTableHeader(const Model& model);
std::string EmitDriverTableSource(const Model& model);
std::string EmitRecordingDriver(const Model& model);    // tests
std::string EmitLoopbackCases(const Section& section);  // tests
std::string EmitDictionary(const Model& model);         // fuzzing
std::string EmitValues(const Model& model);             // both sides: which values calls take
std::string EmitProbes(const Model& model);             // tests
// docs/calls.md. `native`: the symbols that the emulation device has.
std::string EmitCallTable(const Model& model, const std::string& reasons_path,
                          const std::set<std::string>& native);

// What generated C++ begins with.
std::string Banner();

// A C expression over the parameters, with each parameter made a `Wide` (128 bits), so that the
// result cannot wrap.
std::string Widen(const CallModel& call, const std::string& expression);

}  // namespace smolvm::gen
