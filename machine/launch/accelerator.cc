#include "machine/launch/accelerator.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "machine/guest/kernel.h"
#include "machine/util/failure.h"
#include "machine/util/paths.h"

namespace smolvm::machine {
namespace {

// "kvm", "tcg", or "unknown" before the first trial.
std::string Answer(const AcceleratorReport& report) {
  if (report.wish == AcceleratorWish::kTcg || !report.no_device.empty()) return "tcg";
  if (!report.verdict) return "unknown";
  return report.verdict->works ? "kvm" : "tcg";
}

std::string Reason(const AcceleratorReport& report) {
  if (report.wish == AcceleratorWish::kTcg) return "TCG was asked for (SMOLVM_ACCELERATOR)";
  if (!report.no_device.empty()) return report.no_device;
  if (!report.verdict) return "KVM has not been tried yet: the next machine does, or --retry";
  if (report.verdict->works) return "KVM booted this kernel with -cpu " + report.verdict->cpu;
  return fmt::format("KVM does not run the guest's kernel here: {}", report.verdict->reason);
}

}  // namespace

std::string FormatAccelerator(const AcceleratorReport& report) {
  std::string text = fmt::format("accelerator={}\nreason={}\n", Answer(report), Reason(report));
  if (report.verdict) {
    text += fmt::format("qemu={}\nkernel={}\n", report.verdict->qemu, report.verdict->kernel);
  }
  if (report.verdict && !report.verdict->works) {
    text += "hint='smolvm machine accelerator --retry' tries KVM again\n";
  }
  return text;
}

std::string FormatAcceleratorJson(const AcceleratorReport& report) {
  nlohmann::json json = {{"accelerator", Answer(report)},
                         {"reason", Reason(report)},
                         {"kvm_device", report.no_device.empty()},
                         {"kvm_tried", report.verdict.has_value()},
                         {"kvm_works", nullptr}};
  if (report.verdict) {
    json["kvm_works"] = report.verdict->works;
    json["cpu"] = report.verdict->cpu;
    json["qemu"] = report.verdict->qemu;
    json["kernel"] = report.verdict->kernel;
    json["tried"] = report.verdict->tried;
  }
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

int ShowAccelerator(const Options& options) {
  AcceleratorReport report;
  report.wish = ChosenWish("");
  report.no_device = WhyNoKvmDevice();
  const auto cache = CacheFolder();
  if (report.no_device.empty()) {
    if (options.retry) {
      report.verdict = TryKvm(EnsureKernel(cache).image, cache);
    } else if (const auto kernel = CachedKernel(cache)) {
      report.verdict = KeptVerdict(kernel->image, cache);
    }
  }
  std::fputs((options.json ? FormatAcceleratorJson(report) : FormatAccelerator(report)).c_str(),
             stdout);
  return 0;
}

}  // namespace smolvm::machine
