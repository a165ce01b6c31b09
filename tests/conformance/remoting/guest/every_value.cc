// Every described call with every value (probe.h).
#include <unistd.h>

#include <algorithm>

#include "tests/conformance/remoting/guest/command.h"
#include "tests/conformance/remoting/guest/probe.h"

namespace smolvm::remoting {
namespace {

struct Entry {
  const char* call;
  void (*drive)(Fixture*);
};

// PROBE(function, names of its parameters …)
#define PROBE(function, ...)                                               \
  {#function, [](Fixture* fixture) {                                       \
     DriveOne(fixture, #function, &::function __VA_OPT__(, ) __VA_ARGS__); \
   }},
constexpr Entry kEntries[] = {
#include "protocol/api/probes.inc"
};
#undef PROBE

}  // namespace

// All calls, or those that are named.
COMMAND(every_value) {
  alarm(200);  // a call that waits for ever is a failure with the call before it as the last line
  OK(cuInit(0));
  Fixture fixture;
  for (const Entry& entry : kEntries) {
    if (arguments.empty() ||
        std::find(arguments.begin(), arguments.end(), entry.call) != arguments.end())
      entry.drive(&fixture);
  }
}

}  // namespace smolvm::remoting
