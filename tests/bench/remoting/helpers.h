// Runs of this program as a process of its own, for what can be measured only once in a process.
#pragma once

#include <string>

namespace smolvm::bench {

// The process begins with one of these names after --helper, prints one number and ends.
//   nothing   0: what a process costs by itself
//   first     ms from opening the guest library to the return of the first call of the device
//   memory    MB of resident memory that the same adds
//   memsets   ms of the memsets in the library that runs here, without a daemon
//   remote_memsets  the same through the guest library
//   trip      ms of a call that waits, through the guest library
int RunHelper(const std::string& name);

// The number, and how long the process lived.
struct HelperResult {
  double number;
  double wall_ms;
};
HelperResult StartHelper(const std::string& name);

}  // namespace smolvm::bench
