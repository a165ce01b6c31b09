#pragma once

#include <string>
#include <vector>

namespace smolvm::gpu {

// What a program did: its exit status (128 + signal when killed) and its output.
struct Captured {
  int status = -1;
  std::string out;
  std::string err;
};

// Runs argv[0] from PATH without input, with these variables added, for at most a minute.
Captured Capture(const std::vector<std::string>& argv,
                 const std::vector<std::string>& variables = {});

// The same for a line of shell.
Captured Shell(const std::string& script, const std::vector<std::string>& variables = {});

// The lines of `text`, sorted.
std::vector<std::string> SortedLines(const std::string& text);

// What `more` has beyond `base`; both sorted.
std::vector<std::string> Added(const std::vector<std::string>& base,
                               const std::vector<std::string>& more);

}  // namespace smolvm::gpu
