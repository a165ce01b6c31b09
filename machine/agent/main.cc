// The agent: process 1 of a machine.
//
// It brings the machine up, tells the launcher that it is ready, runs the commands it is asked to
// run and powers the machine off when told to, or when the launcher is gone.
//
// With the argument `trial` it says one word and ends the machine (machine/guest/trial.h).
//
// For tests on the host: `smolvm-machine-agent --connect PATH --secret S` only serves commands.
#include <signal.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <unistd.h>

#include <cstdio>
#include <string_view>

#include "machine/agent/boot.h"
#include "machine/agent/control.h"
#include "machine/agent/share.h"
#include "machine/guest/trial.h"
#include "machine/util/failure.h"

namespace smolvm::agent {
namespace {

using machine::Channel;
using machine::GuestConfig;

Channel ConnectControl(const Endpoint& endpoint, const std::string& secret) {
  return Channel(Connect(endpoint, {secret, "control", ""}), machine::kMaxFrameFromHost);
}

[[noreturn]] void PowerOff() {
  sync();
  mount(nullptr, "/", nullptr, MS_REMOUNT | MS_RDONLY, nullptr);
  reboot(RB_POWER_OFF);
  reboot(RB_AUTOBOOT);  // QEMU runs with -no-reboot
  while (true) pause();
}

void BringUp(const GuestConfig& config, ControlOptions* options) {
  EnterRoot(config);
  PrepareSystem(config);
  for (size_t i = 0; i < config.shares.size(); ++i) {
    options->carriers.push_back(MountShare(
        options->endpoint, {config.secret, "share", std::to_string(i)}, config.shares[i]));
  }
}

[[noreturn]] void RunAsInit() {
  try {
    MountEarly();
    const GuestConfig config = ReadConfig();
    LoadModules(config);
    ControlOptions options{{config.port, ""}, config.secret, {}, config.persistent};
    Channel control = ConnectControl(options.endpoint, config.secret);
    if (control.fd() < 0) machine::Fail("the launcher cannot be reached: {}", machine::ErrnoText());
    try {
      BringUp(config, &options);
      ServeControl(options, &control);
    } catch (const std::exception& error) {
      std::string payload;
      machine::PutString(&payload, error.what());
      control.Send(machine::FrameType::kFailed, payload);
      std::fprintf(stderr, "smolvm-agent: %s\n", error.what());
    }
    StopProcesses(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "smolvm-agent: %s\n", error.what());
  }
  PowerOff();
}

[[noreturn]] void RunTrial() {
  std::printf("%s\n", machine::kTrialWord);
  std::fflush(stdout);
  PowerOff();
}

int RunForTests(int argc, char** argv) {
  ControlOptions options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    if (name == "--connect") options.endpoint.unix_path = argv[i + 1];
    if (name == "--secret") options.secret = argv[i + 1];
  }
  Channel control = ConnectControl(options.endpoint, options.secret);
  if (control.fd() < 0) {
    std::fprintf(stderr, "smolvm-agent: nothing listens at %s\n",
                 options.endpoint.unix_path.c_str());
    return 1;
  }
  ServeControl(options, &control);
  return 0;
}

}  // namespace
}  // namespace smolvm::agent

int main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);
  const bool trial = argc > 1 && std::string_view(argv[1]) == smolvm::machine::kTrialArgument;
  if (getpid() == 1) trial ? smolvm::agent::RunTrial() : smolvm::agent::RunAsInit();
  return smolvm::agent::RunForTests(argc, argv);
}
