#include "container/command.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "container/actions.h"
#include "container/error.h"
#include "container/help.h"

namespace smolvm::gpu {
namespace {

// Everything that can stand on the command line.
struct Options {
  HostOptions host;
  GrantOptions grant;
  bool json = false;
  std::string format = "shell";
  std::string output;
  std::vector<std::string> podman_args;  // what follows "--"
  bool separator = false;                // whether there was a "--"
};

void AddHostOptions(CLI::App* command, HostOptions& host) {
  command->add_option("--root", host.root, "Read the host's files below DIR instead of /")
      ->type_name("DIR")
      ->check(CLI::ExistingDirectory.description(""))
      ->group("Host");
  command
      ->add_option("--podman", host.podman,
                   "The podman to ask and to run (default: $SMOLVM_PODMAN, else podman)")
      ->type_name("PROGRAM")
      ->group("Host");
  command
      ->add_option(
          "--podman-option", host.podman_options,
          "An option to give podman before its command, such as --podman-option=--root=DIR; "
          "repeatable")
      ->type_name("OPTION")
      ->expected(1)
      ->take_all()
      ->group("Host");
}

void AddRemotingOptions(CLI::App* command, GrantOptions& grant) {
  command
      ->add_option("--library", grant.library,
                   "The host's folder with the guest's libcuda.so.1 (default: "
                   "$SMOLVM_CUDA_LIBRARIES, else the installed one)")
      ->type_name("DIR")
      ->group("Remoting");
  command
      ->add_option(
          "--socket", grant.socket,
          "The daemon's Unix socket (default: $SMOLVM_CUDA_SOCKET, else unix:PATH in "
          "$SMOLVM_CUDA_ENDPOINT, else smolvm-cuda/daemon.sock in $XDG_RUNTIME_DIR or /run)")
      ->type_name("PATH")
      ->group("Remoting");
  command
      ->add_option(
          "--append-library-path", grant.more_library_path,
          "Folders to append to the container's LD_LIBRARY_PATH, which replaces the image's")
      ->type_name("PATHS")
      ->group("Remoting");
}

void AddGrantOptions(CLI::App* command, GrantOptions& grant) {
  command
      ->add_option("SELECTOR", grant.selector,
                   "Which GPUs: all, or nvidia, amd, intel, each with :N for one device; several "
                   "separated by commas or as further words")
      ->type_name("");
  command->add_flag("--remote", grant.remote,
                    "Hand over a smolvm-cuda-daemon's devices instead of the host's GPUs");
  AddRemotingOptions(command, grant);
}

ArgsFormat FormatNamed(const std::string& name) {
  if (name == "json") return ArgsFormat::kJson;
  return name == "lines" ? ArgsFormat::kLines : ArgsFormat::kShell;
}

using Action = std::function<int()>;

CLI::App* AddCommand(CLI::App& app, const char* name, const char* summary, const char* details,
                     std::map<CLI::App*, Action>& actions, Action action) {
  CLI::App* command = app.add_subcommand(name, summary);
  command->footer(details);
  actions[command] = std::move(action);
  return command;
}

void RequireSelector(const GrantOptions& grant) {
  if (grant.selector.empty() && !grant.remote) throw CLI::RequiredError("SELECTOR");
}

void AddCommands(CLI::App& app, Options& o, std::map<CLI::App*, Action>& actions) {
  CLI::App* detect =
      AddCommand(app, "detect", "Show which GPUs this host can pass, and how", kDetectHelp, actions,
                 [&o] { return PrintDetected(o.host.ToHost(), o.json); });
  detect->add_flag("--json", o.json, "Print JSON");
  AddHostOptions(detect, o.host);

  CLI::App* run_args = AddCommand(
      app, "run-args", "Print the podman arguments that pass GPUs", kRunArgsHelp, actions, [&o] {
        RequireSelector(o.grant);
        return PrintRunArgs(o.host.ToHost(), o.grant, FormatNamed(o.format));
      });
  AddGrantOptions(run_args, o.grant);
  run_args
      ->add_option(
          "--format", o.format,
          "shell: one line that is safe to word-split; lines: a word a line; json: an array")
      ->type_name("shell|lines|json")
      ->check(CLI::IsMember({"shell", "lines", "json"}).description(""));
  AddHostOptions(run_args, o.host);

  CLI::App* check =
      AddCommand(app, "check", "Exit 0 when a CDI spec declares NVIDIA GPUs", kCheckHelp, actions,
                 [&o] { return PrintAvailable(o.host.ToHost()); });
  AddHostOptions(check, o.host);

  CLI::App* explain =
      AddCommand(app, "explain", "Explain podman's error text on stdin", kExplainHelp, actions,
                 [&o] { return ExplainStdin(o.host.ToHost()); });
  AddHostOptions(explain, o.host);

  CLI::App* run = AddCommand(app, "run", "Run podman with GPUs and explain a GPU failure", kRunHelp,
                             actions, [&o] {
                               RequireSelector(o.grant);
                               return RunPodman(o.host.ToHost(), o.grant, o.podman_args);
                             });
  AddGrantOptions(run, o.grant);
  AddHostOptions(run, o.host);

  CLI::App* cdi_spec = AddCommand(
      app, "cdi-spec", "Write a CDI spec that hands out the daemon's devices", kCdiSpecHelp,
      actions, [&o] { return WriteCdiSpec(o.host.ToHost(), o.grant, o.output); });
  cdi_spec
      ->add_option("SELECTOR", o.grant.selector,
                   "Which of the daemon's devices (default: all): all, nvidia or nvidia:N")
      ->type_name("");
  AddRemotingOptions(cdi_spec, o.grant);
  cdi_spec
      ->add_option("-o,--output", o.output,
                   "Write to FILE, replacing it in one step, instead of stdout")
      ->type_name("FILE");
  AddHostOptions(cdi_spec, o.host);
}

// Takes what follows "--" off the command line: it is podman's, whatever it looks like.
std::vector<std::string> OwnWords(int argc, char** argv, Options& o) {
  std::vector<std::string> own;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--") == 0) {
      o.separator = true;
      o.podman_args.assign(argv + i + 1, argv + argc);
      break;
    }
    own.emplace_back(argv[i]);
  }
  return own;
}

void CheckSeparator(const CLI::App& app, const Options& o) {
  const bool runs = app.got_subcommand("run");
  if (runs && o.podman_args.empty()) {
    throw CLI::ValidationError("podman's arguments are missing",
                               "smolvm gpu run SELECTOR -- [PODMAN-OPTION…] IMAGE [COMMAND…]");
  }
  if (!runs && o.separator) throw CLI::ExtrasError({"--"});
}

// CLI11 says only that a command is required.
void CheckCommand(const CLI::App& app, const std::vector<std::string>& words) {
  if (words.empty() || words.front() == "--help" || words.front() == "-h") return;
  if (words.front().starts_with('-')) {
    throw std::invalid_argument("'" + words.front() + "' is not an option of smolvm gpu itself");
  }
  std::string known;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_name() == words.front()) return;
    known += (known.empty() ? "" : ", ") + command->get_name();
  }
  throw std::invalid_argument("'" + words.front() + "' is not a command; " + known + " are");
}

int Fail(const std::string& message, const std::string& hint, int status) {
  std::fprintf(stderr, "smolvm gpu: %s\n", message.c_str());
  if (!hint.empty()) std::fprintf(stderr, "%s\n", hint.c_str());
  return status;
}

int Dispatch(CLI::App& app, std::vector<std::string> words, const Options& o,
             const std::map<CLI::App*, Action>& actions) {
  try {
    CheckCommand(app, words);
    std::reverse(words.begin(), words.end());  // CLI11 takes them from the back
    app.parse(words);
    CheckSeparator(app, o);
    return actions.at(app.get_subcommands().front())();
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    return Fail(error.what(), "`smolvm gpu --help` explains the options.", kExitFailed);
  } catch (const GpuConfigError& error) {
    return Fail(error.what(), error.hint(), kExitFailed);
  } catch (const std::exception& error) {
    return Fail(error.what(), "", kExitFailed);
  }
}

}  // namespace

int RunCommand(int argc, char** argv) {
  Options options;
  std::map<CLI::App*, Action> actions;
  CLI::App app(kSummary, "smolvm gpu");
  app.footer(kOverviewHelp);
  app.require_subcommand(1);
  AddCommands(app, options, actions);
  const std::vector<std::string> words = OwnWords(argc, argv, options);
  const int status = Dispatch(app, words, options, actions);
  if (status != 0 && !words.empty() && words.front() == "run-args") std::puts(kErrorWord);
  return status;
}

}  // namespace smolvm::gpu
