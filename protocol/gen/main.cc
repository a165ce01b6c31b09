// protoc-gen-smolcuda: the protoc plugin that turns protocol/api into code. See
// docs/architecture.md.
//
//   protoc --smolcuda_out=exports=FILE,lock=FILE:OUT protocol/api/*.proto
//   protoc --smolcuda_out=exports=FILE,lock=FILE,reasons=FILE,native=FOLDER:OUT
//   protocol/api/*.proto
//
// The second form writes the page of all calls and nothing else; `native` is the emulation device's
// sources.
#include <google/protobuf/compiler/code_generator.h>
#include <google/protobuf/compiler/plugin.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <memory>
#include <stdexcept>

#include "protocol/gen/model.h"

namespace smolvm::gen {
namespace {

namespace pb = google::protobuf;

class Generator : public pb::compiler::CodeGenerator {
 public:
  uint64_t GetSupportedFeatures() const override { return FEATURE_PROTO3_OPTIONAL; }

  bool Generate(const pb::FileDescriptor*, const std::string&, pb::compiler::GeneratorContext*,
                std::string* error) const override {
    *error = "smolcuda needs all files at once";
    return false;
  }

  bool GenerateAll(const std::vector<const pb::FileDescriptor*>& files,
                   const std::string& parameter, pb::compiler::GeneratorContext* context,
                   std::string* error) const override {
    std::vector<std::pair<std::string, std::string>> pairs;
    pb::compiler::ParseGeneratorParameter(parameter, &pairs);
    std::map<std::string, std::string> options(pairs.begin(), pairs.end());
    try {
      const Model model = BuildModel(files, options["exports"], options["lock"]);
      if (!options["native"].empty()) {
        Write(context, "protocol/api/calls.md",
              EmitCallTable(model, options["reasons"], ReadNativeSymbols(options["native"])));
        return true;
      }
      EmitFiles(files, context);
      for (const Section& section : model.sections) {
        const std::string stem = "protocol/api/" + section.name;
        Write(context, stem + ".entry.cc", EmitEntry(section));
        Write(context, stem + ".dispatch.cc", EmitDispatch(section));
        Write(context, stem + ".loopback.cc", EmitLoopbackCases(section));
      }
      Write(context, "protocol/api/codec_table.h", EmitCodecTable(files));
      Write(context, "protocol/api/call_ids.h", EmitCallIds(model));
      Write(context, "protocol/api/guest_manual.h", EmitGuestManual(model));
      Write(context, "protocol/api/host_manual.h", EmitHostManual(model));
      Write(context, "protocol/api/dispatch_table.cc", EmitDispatchTable(model));
      Write(context, "protocol/api/driver_table.h", EmitDriverTableHeader(model));
      Write(context, "protocol/api/driver_table.cc", EmitDriverTableSource(model));
      Write(context, "protocol/api/recording_driver.h", EmitRecordingDriver(model));
      Write(context, "protocol/api/values.h", EmitValues(model));
      Write(context, "protocol/api/probes.inc", EmitProbes(model));
      Write(context, "protocol/api/frame.dict", EmitDictionary(model));
    } catch (const std::exception& failure) {
      *error = failure.what();
      return false;
    }
    return true;
  }

 private:
  static void EmitFiles(const std::vector<const pb::FileDescriptor*>& files,
                        pb::compiler::GeneratorContext* context) {
    for (const pb::FileDescriptor* file : files) {
      const std::string stem = file->name().substr(0, file->name().size() - 6);
      if (stem.ends_with("call_options")) continue;
      Write(context, stem + ".wire.h", EmitWireHeader(*file));
      Write(context, stem + ".wire.cc", EmitWireSource(*file));
    }
  }

  static void Write(pb::compiler::GeneratorContext* context, const std::string& name,
                    const std::string& text) {
    std::unique_ptr<pb::io::ZeroCopyOutputStream> stream(context->Open(name));
    void* data;
    int size;
    size_t done = 0;
    while (done < text.size() && stream->Next(&data, &size)) {
      const size_t step = std::min(text.size() - done, static_cast<size_t>(size));
      memcpy(data, text.data() + done, step);
      done += step;
      if (step < static_cast<size_t>(size)) stream->BackUp(size - static_cast<int>(step));
    }
  }
};

}  // namespace
}  // namespace smolvm::gen

int main(int argc, char** argv) {
  smolvm::gen::Generator generator;
  return google::protobuf::compiler::PluginMain(argc, argv, &generator);
}
