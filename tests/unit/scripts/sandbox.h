// A checkout with the scripts alone, and a PATH with nothing but what a test puts there and a few
// ordinary tools: what the scripts find on this machine is what the test says.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

namespace smolvm::scripts {

struct Outcome {
  std::string out;
  std::string err;
  int status = -1;
};

// Lifetime: the folder is removed with the object.
class Sandbox {
 public:
  Sandbox();
  ~Sandbox();
  Sandbox(const Sandbox&) = delete;
  Sandbox& operator=(const Sandbox&) = delete;

  const std::filesystem::path& dir() const { return dir_; }
  std::filesystem::path state_home() const { return dir_ / "state"; }
  std::filesystem::path record_file() const {
    return state_home() / "smolvm-skills/gpu-cuda.machines";
  }

  // Puts a shell script on PATH; $SANDBOX is this folder there.
  void AddTool(const std::string& name, const std::string& script);
  void RemoveTool(const std::string& name);
  // Puts a program of this machine on PATH under its own name; false where it has none.
  bool LinkTool(const std::string& name);
  // Adds a launcher that plays `machine run`, `list`, `delete` and `accelerator` from the files
  // run_output, run_status, list and accelerator, and writes its arguments, a line a call, to the
  // file calls.
  void AddLauncher(const std::string& version);

  void Set(const std::string& variable, const std::string& value) {
    environment_[variable] = value;
  }
  void Write(const std::string& name, std::string_view text);
  std::string Read(const std::string& name) const;

  // Runs scripts/NAME with arguments as a shell would split them.
  Outcome Run(const std::string& name, const std::string& arguments = "");

 private:
  std::filesystem::path dir_;
  std::map<std::string, std::string> environment_;
};

}  // namespace smolvm::scripts
