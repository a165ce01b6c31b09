#include "machine/command.h"

#include <signal.h>

#include <cstdio>
#include <new>

#include "machine/launch/accelerator.h"
#include "machine/launch/manage.h"
#include "machine/launch/options.h"
#include "machine/launch/run.h"
#include "machine/supervise/supervisor.h"
#include "machine/util/failure.h"
#include "machine/util/interrupt.h"
#include "machine/util/progress.h"

namespace smolvm::machine {
namespace {

int Dispatch(const Options& options) {
  if (options.verb == "supervise") {
    return RunSupervisor({options.record, options.owner_fd, options.lock_fd});
  }
  CatchInterrupts();
  signal(SIGXFSZ, SIG_IGN);  // a file that may not grow any more is an error that is told
  if (options.verb == "run") return RunMachine(options);
  if (options.verb == "exec") return ExecInMachine(options);
  if (options.verb == "accelerator") return ShowAccelerator(options);
  if (options.verb == "list") return ListMachines(options);
  if (options.verb == "stop") return StopMachines(options);
  if (options.verb == "delete") return DeleteMachines(options);
  return PruneMachines(options);
}

}  // namespace

int RunCommand(int argc, char** argv) {
  try {
    return Dispatch(ParseOptions(argc, argv));
  } catch (const ParseEnd& end) {
    std::fputs(end.text.c_str(), stdout);
    return end.status;
  } catch (const Failure& failure) {
    Say(failure.what());
    return failure.status();
  } catch (const std::exception& error) {
    Say(error.what());
    return kOwnError;
  }
}

}  // namespace smolvm::machine
