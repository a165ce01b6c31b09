// What a machine is: everything needed to start it, kept as machine.json in its folder.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace smolvm::machine {

struct Share {
  std::string host;   // absolute
  std::string guest;  // absolute
  bool read_only = false;
  bool is_file = false;
};

struct MachineRecord {
  std::string name;
  int64_t created = 0;     // seconds since 1970
  bool ephemeral = true;   // removed when it ends
  bool detached = false;   // outlives the launcher that started it
  std::string image;       // as the user named it
  std::string image_file;  // erofs, in the cache
  std::string kernel;      // vmlinuz, in the cache
  uint32_t memory_mib = 0;
  uint32_t cpus = 1;
  uint32_t asked_cpus = 0;        // 0: as many as go with what it runs on
  std::string accelerator;        // --accelerator; "": not given
  std::string runs_on = "tcg";    // kvm or tcg, chosen at each start
  std::string cpu_model = "max";  // QEMU's -cpu, chosen with it
  bool net = false;
  bool cuda = false;
  std::vector<Share> shares;
  std::vector<std::string> env;  // KEY=VALUE, of every command
  std::string workdir;
  std::string user;
  std::vector<std::string> command;  // a detached machine's
  uint32_t ready_timeout_s = 0;      // 0: as long as goes with what it runs on
  uint32_t agent_port = 0;
  uint32_t cuda_port = 0;
};

std::string EncodeRecord(const MachineRecord& record);
// Throws Failure when the text is not a record.
MachineRecord DecodeRecord(const std::string& text);

}  // namespace smolvm::machine
