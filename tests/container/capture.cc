#include "tests/container/capture.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <sstream>

namespace smolvm::gpu {
namespace {

std::string Contents(FILE* file) {
  std::rewind(file);
  std::string text;
  char block[4096];
  while (const std::size_t n = std::fread(block, 1, sizeof(block), file)) text.append(block, n);
  std::fclose(file);
  return text;
}

}  // namespace

Captured Capture(const std::vector<std::string>& argv, const std::vector<std::string>& variables) {
  std::vector<std::string> words = {"timeout", "-k", "5", "60", "env"};
  words.insert(words.end(), variables.begin(), variables.end());
  words.insert(words.end(), argv.begin(), argv.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  FILE* out = std::tmpfile();
  FILE* err = std::tmpfile();
  const pid_t child = fork();
  if (child == 0) {
    dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
    dup2(fileno(out), STDOUT_FILENO);
    dup2(fileno(err), STDERR_FILENO);
    execvp(pointers[0], pointers.data());
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  Captured captured;
  captured.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  captured.out = Contents(out);
  captured.err = Contents(err);
  return captured;
}

Captured Shell(const std::string& script, const std::vector<std::string>& variables) {
  return Capture({"sh", "-c", script}, variables);
}

std::vector<std::string> SortedLines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

std::vector<std::string> Added(const std::vector<std::string>& base,
                               const std::vector<std::string>& more) {
  std::vector<std::string> added;
  std::set_difference(more.begin(), more.end(), base.begin(), base.end(),
                      std::back_inserter(added));
  return added;
}

}  // namespace smolvm::gpu
