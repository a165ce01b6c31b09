#include "machine/state/record.h"

#include <nlohmann/json.hpp>

#include "machine/util/failure.h"

namespace smolvm::machine {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Share, host, guest, read_only, is_file)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(MachineRecord, name, created, ephemeral, detached, image,
                                   image_file, kernel, memory_mib, cpus, asked_cpus, accelerator,
                                   runs_on, cpu_model, net, cuda, shares, env, workdir, user,
                                   command, ready_timeout_s, agent_port, cuda_port)

std::string EncodeRecord(const MachineRecord& record) {
  return nlohmann::json(record).dump(2, ' ', false, nlohmann::json::error_handler_t::replace) +
         "\n";
}

MachineRecord DecodeRecord(const std::string& text) {
  try {
    return nlohmann::json::parse(text).get<MachineRecord>();
  } catch (const nlohmann::json::exception& error) {
    Fail("it is not a machine's description: {}", error.what());
  }
}

}  // namespace smolvm::machine
