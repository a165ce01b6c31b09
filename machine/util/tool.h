// Runs other programs: to their end (RunTool), or as children that live as long as we do
// (StartChild).
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace smolvm::machine {

struct ToolResult {
  int status = 0;  // exit status, or 128 + signal
  std::string out, err;
  // The last line of stderr that says something: what to show of a failure.
  std::string Reason() const;
};

struct ToolOptions {
  std::string doing;  // shown when it takes more than 2 s: "pulling python:3.12-slim"
  std::string workdir;
  std::vector<std::pair<std::string, std::string>> env;  // added to ours
  // Asked while it runs: what speaks against going on, or "". Then it is ended, and Failure says
  // so.
  std::function<std::string()> problem;
};

// Waits for the end. Output beyond 1 MiB is dropped from its front. A signal to us ends the tool
// and throws Failure, as does a tool that is not installed (it is named).
ToolResult RunTool(const std::vector<std::string>& argv, const ToolOptions& options = {});
// The same; a status other than 0 throws Failure("<doing>: <reason>").
ToolResult MustRun(const std::vector<std::string>& argv, const ToolOptions& options);

// The full path of a program in PATH or the system folders (an ordinary user's PATH lacks sbin).
// Empty when there is none.
std::string FindProgram(const std::string& name);

// Starts a program that is killed when the calling thread ends. `output`: a file for stdout and
// stderr, or "" for ours. `workdir` may be "". Throws Failure when it cannot be started.
pid_t StartChild(const std::vector<std::string>& argv, const std::string& output,
                 const std::string& workdir,
                 const std::vector<std::pair<std::string, std::string>>& env = {});

}  // namespace smolvm::machine
