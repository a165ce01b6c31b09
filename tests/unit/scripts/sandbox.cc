#include "tests/unit/scripts/sandbox.h"

#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace smolvm::scripts {

namespace fs = std::filesystem;

namespace {

constexpr const char* kTools[] = {"awk",     "bash", "cat",       "cut",     "date",     "dirname",
                                  "env",     "find", "grep",      "head",    "id",       "mkdir",
                                  "mktemp",  "mv",   "nproc",     "python3", "readlink", "realpath",
                                  "rm",      "sed",  "sha256sum", "sleep",   "sort",     "tee",
                                  "timeout", "tr",   "touch",     "wc"};

std::string ReadFile(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

}  // namespace

Sandbox::Sandbox() {
  std::string name = (fs::temp_directory_path() / "smolvm-scripts-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  dir_ = name;
  for (const char* folder : {"bin", "home", "host/dev", "checkout"})
    fs::create_directories(dir_ / folder);
  fs::copy(SOURCE_DIR "/scripts", dir_ / "checkout/scripts", fs::copy_options::recursive);
  Write("checkout/CMakeLists.txt", "project(smolvm-cuda VERSION 1.2.3 LANGUAGES C CXX ASM)\n");
  for (const char* tool : kTools) LinkTool(tool);
}

Sandbox::~Sandbox() {
  std::error_code ignored;
  fs::remove_all(dir_, ignored);
}

void Sandbox::AddTool(const std::string& name, const std::string& script) {
  RemoveTool(name);
  Write("bin/" + name, "#!/bin/bash\nSANDBOX=" + dir_.string() + "\n" + script + "\n");
  fs::permissions(dir_ / "bin" / name, fs::perms::owner_all);
}

void Sandbox::RemoveTool(const std::string& name) { fs::remove(dir_ / "bin" / name); }

bool Sandbox::LinkTool(const std::string& name) {
  for (const char* folder : {"/usr/bin/", "/bin/"}) {
    if (!fs::exists(folder + name)) continue;
    fs::create_symlink(folder + name, dir_ / "bin" / name);
    return true;
  }
  return false;
}

void Sandbox::AddLauncher(const std::string& version) {
  Write("list", "");
  Write("run_output", "");
  Write("accelerator", "{\n  \"kvm_works\": null,\n  \"reason\": \"\"\n}\n");
  Write("run_status", "0");
  Write("version", "smolvm " + version + "\n");
  AddTool("smolvm", R"sh(
printf '%s\n' "$*" >>"$SANDBOX/calls"
case "$1 $2" in
  '--version ') cat "$SANDBOX/version" ;;
  'machine run') cat "$SANDBOX/run_output"; exit "$(cat "$SANDBOX/run_status")" ;;
  'machine list')
    if [ -e "$SANDBOX/list_fails" ]; then echo 'state folder is unreadable' >&2; exit 125; fi
    if [ -s "$SANDBOX/list" ]; then
      printf 'NAME                STATUS\n--------------------------\n'
      cat "$SANDBOX/list"
    else
      echo 'No machines found'
    fi ;;
  'machine accelerator') cat "$SANDBOX/accelerator" ;;
  'machine delete') sed -i "/^$4 /d" "$SANDBOX/list" ;;
esac)sh");
}

void Sandbox::Write(const std::string& name, std::string_view text) {
  fs::create_directories((dir_ / name).parent_path());
  std::ofstream(dir_ / name, std::ios::binary) << text;
}

std::string Sandbox::Read(const std::string& name) const { return ReadFile(dir_ / name); }

Outcome Sandbox::Run(const std::string& name, const std::string& arguments) {
  std::string command =
      "cd " + (dir_ / "checkout").string() + " && env -i PATH=" + (dir_ / "bin").string() +
      " HOME=" + (dir_ / "home").string() + " XDG_STATE_HOME=" + state_home().string() +
      " SMOLVM_PREFLIGHT_ROOT=" + (dir_ / "host").string();
  for (const auto& [variable, value] : environment_) command += " " + variable + "='" + value + "'";
  command += " bash scripts/" + name + " " + arguments + " >" + (dir_ / "stdout").string() + " 2>" +
             (dir_ / "stderr").string() + " </dev/null";
  const int status = std::system(command.c_str());
  return {Read("stdout"), Read("stderr"), WIFEXITED(status) ? WEXITSTATUS(status) : -1};
}

}  // namespace smolvm::scripts
