#include "machine/launch/manage.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>

#include "machine/image/store.h"
#include "machine/launch/link.h"
#include "machine/supervise/cuda_watch.h"
#include "machine/supervise/helpers.h"
#include "machine/util/failure.h"
#include "machine/util/files.h"
#include "machine/util/interrupt.h"
#include "machine/util/paths.h"
#include "machine/util/progress.h"

namespace smolvm::machine {
namespace {

std::string UtcTime(int64_t seconds) {
  const time_t time = seconds;
  tm parts{};
  gmtime_r(&time, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

// Whether CUDA can be had in the machine at this moment.
std::string CudaOf(const MachineEntry& entry) {
  if (!entry.record.cuda) return "no";
  const std::string state = entry.running ? ReadCudaState(entry.folder) : "";
  return state.empty() ? "yes" : state;
}

std::string WhyFailed(const MachineEntry& entry) {
  return entry.running ? "" : FileTail(entry.folder / kFailedFile, 4096);
}

const char* StatusOf(const MachineEntry& entry) {
  if (entry.running) return "running";
  return WhyFailed(entry).empty() ? "stopped" : "failed";
}

// Removes the image of a machine from the cache unless another machine needs it.
void DropImageOf(MachineStore* store, const MachineRecord& record) {
  for (const MachineEntry& other : store->List()) {
    if (other.record.name != record.name && other.record.image_file == record.image_file) return;
  }
  DropImage(record.image_file, CacheFolder());
}

// Of a machine that was stopped. One that is gone by now went by itself.
void RemoveMachine(MachineStore* store, const MachineRecord& record, bool with_image) {
  const UniqueFd lock = LockStopped(store, record.name);
  if (with_image) DropImageOf(store, record);
  if (lock.valid()) store->Remove(record.name);
}

void StopOne(MachineStore* store, const std::string& name, const Options& options) {
  store->Get(name);
  StopMachine(*store, name, options.force);
}

void DeleteOne(MachineStore* store, const std::string& name, const Options& options) {
  const MachineEntry entry = store->Get(name);
  if (!options.force && IsUp(*store, name)) {
    Fail("the machine {} is running; stop it first, or use --force", name);
  }
  StopMachine(*store, name, options.force);
  RemoveMachine(store, entry.record, options.cascade);
}

void PruneOne(MachineStore* store, const std::string& name, const Options& options) {
  const MachineEntry entry = store->Get(name);
  if (!options.all && !options.force && IsUp(*store, name)) {
    Fail("the machine {} is running; stop it first, or use --all", name);
  }
  StopMachine(*store, name, options.force);
  RemoveMachine(store, entry.record, options.all);
}

// Each of the names, whatever becomes of the others. The status is the last failure's.
int ForEachName(const Options& options,
                void (*act)(MachineStore*, const std::string&, const Options&)) {
  MachineStore store(StateFolder());
  store.Reap();
  int status = 0;
  for (const std::string& name : options.names) {
    try {
      CheckInterrupt();
      act(&store, name, options);
    } catch (const Failure& failure) {
      if (failure.status() != kOwnError) throw;
      Say(failure.what());
      status = failure.status();
    }
  }
  return status;
}

}  // namespace

std::string FormatList(const std::vector<MachineEntry>& entries) {
  if (entries.empty()) return "No machines found\n";
  size_t name_width = 4, image_width = 5;
  for (const MachineEntry& entry : entries) {
    name_width = std::max(name_width, entry.record.name.size());
    image_width = std::max(image_width, entry.record.image.size());
  }
  std::string out =
      fmt::format("{:<{}}  {:<8}  {:<{}}  {:>7}  {:>4}  {:<10}  {}\n", "NAME", name_width, "STATUS",
                  "IMAGE", image_width, "MEM MiB", "CPUS", "CUDA", "CREATED");
  out += std::string(name_width + image_width + 66, '-') + "\n";
  for (const MachineEntry& entry : entries) {
    const MachineRecord& record = entry.record;
    out += fmt::format("{:<{}}  {:<8}  {:<{}}  {:>7}  {:>4}  {:<10}  {}\n", record.name, name_width,
                       StatusOf(entry), record.image, image_width, record.memory_mib, record.cpus,
                       CudaOf(entry), UtcTime(record.created));
  }
  return out;
}

std::string FormatListJson(const std::vector<MachineEntry>& entries) {
  nlohmann::json list = nlohmann::json::array();
  for (const MachineEntry& entry : entries) {
    const MachineRecord& record = entry.record;
    list.push_back({{"name", record.name},
                    {"status", StatusOf(entry)},
                    {"reason", WhyFailed(entry)},
                    {"ephemeral", record.ephemeral},
                    {"image", record.image},
                    {"memory_mib", record.memory_mib},
                    {"cpus", record.cpus},
                    {"cuda", record.cuda},
                    {"cuda_state", CudaOf(entry)},
                    {"accelerator", record.runs_on},
                    {"net", record.net},
                    {"created", UtcTime(record.created)},
                    {"folder", entry.folder.string()}});
  }
  return list.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

int ListMachines(const Options& options) {
  MachineStore store(StateFolder());
  store.Reap();
  std::vector<MachineEntry> entries;
  for (const std::string& name : options.names) entries.push_back(store.Get(name));
  if (options.names.empty()) entries = store.List();
  std::fputs((options.json ? FormatListJson(entries) : FormatList(entries)).c_str(), stdout);
  return 0;
}

int StopMachines(const Options& options) { return ForEachName(options, StopOne); }

int DeleteMachines(const Options& options) { return ForEachName(options, DeleteOne); }

int PruneMachines(const Options& options) { return ForEachName(options, PruneOne); }

}  // namespace smolvm::machine
