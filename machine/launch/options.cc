#include "machine/launch/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <utility>

#include "machine/image/source.h"
#include "machine/state/store.h"
#include "machine/util/failure.h"
#include "protocol/log/log.h"

namespace smolvm::machine {
namespace {

constexpr int kMostNames = 1 << 20;

// Before CLI11 has turned them into what Options holds.
struct RawTexts {
  std::string timeout, ready_timeout;
  std::vector<std::string> env;
  bool gpu = false;
  std::vector<std::string> arguments;  // names, where they are no option's
  bool name_given = false;
};

// CLI11's own message for a wrong number is about its conversion.
const CLI::Validator kWhole(
    [](std::string& text) {
      uint32_t value = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      if (error == std::errc() && end == text.data() + text.size()) return std::string();
      return "'" + text + "' is not a whole number from 0 to " + std::to_string(UINT32_MAX);
    },
    "");

void AddCommandOptions(CLI::App* app, Options* options, RawTexts* raw) {
  app->add_option("-e,--env", raw->env, "KEY=VALUE for the command; KEY takes the value from here")
      ->allow_extra_args(false);
  app->add_option("-w,--workdir", options->workdir,
                  "the command's folder in the machine (run makes it when it is missing)");
  app->add_flag("-i,--interactive", options->interactive, "pass standard input on");
  app->add_flag("-t,--tty", options->tty, "give the command a terminal");
  app->add_option("--timeout", raw->timeout, "end the command after this time (30s, 5m, 1h)");
}

void AddRun(CLI::App* app, Options* options, RawTexts* raw) {
  AddCommandOptions(app, options, raw);
  app->add_flag("--cuda", options->cuda, "CUDA in the machine, on this host's GPU");
  app->add_flag("--gpu", raw->gpu)->group("");
  app->add_flag("--net", options->net, "a network (QEMU's user-mode one); off by default");
  app->add_option("--mem", options->memory_mib, "the machine's memory in MiB (2048)")
      ->check(kWhole);
  app->add_option(
         "--cpus", options->cpus,
         "the machine's processors; 0, the default, is 1 where the machine is emulated, else as "
         "many as this host has, 4 at most")
      ->check(kWhole);
  app->add_option("-v,--volume", options->volumes, "HOST:GUEST[:ro], a folder or file of this host")
      ->allow_extra_args(false);
  app->add_option("-I,--image", options->image,
                  std::string("a registry reference, an archive (./x.tar), an unpacked folder "
                              "(./rootfs/), 'debian' or 'debian/SUITE' (") +
                      kDefaultImage + ")");
  app->add_option("--image-limit", options->image_limit,
                  "what an image may come to when it is unpacked, such as 100G (64G)")
      ->transform(CLI::AsSizeValue(false));
  app->add_option("-n,--name", options->name, "the machine's name");
  app->add_flag("-d,--detach", options->detach,
                "leave the machine running; with --name it is kept");
  app->add_option(
      "--accelerator", options->accelerator,
      "kvm, tcg (emulation, slow), or auto: KVM where it was seen to boot the machine's "
      "kernel ($SMOLVM_ACCELERATOR, else auto)");
  app->add_option("--ready-timeout", raw->ready_timeout,
                  "how long the machine may take to start (30s; 5m when it is emulated)");
}

void CheckName(const std::string& name) {
  if (ValidMachineName(name)) return;
  Fail("'{}' is not a machine name: letters, digits, '.', '_' and '-', 63 at most", name);
}

bool IsHelp(std::string_view word) { return word == "--help" || word == "-h"; }

CLI::App* AddVerb(CLI::App* app, Options* options, const char* verb, const char* about) {
  CLI::App* sub = app->add_subcommand(verb, about);
  sub->callback([options, verb] { options->verb = verb; });
  return sub;
}

// NAME as an argument, or as --name.
void AddName(CLI::App* app, Options* options, RawTexts* raw) {
  app->add_option("NAME", raw->arguments, "the machine's name")
      ->type_name("")
      ->expected(0, kMostNames);
  app->add_option("-n,--name", options->name, "the machine's name, instead of the argument");
}

void AddVerbs(CLI::App* app, Options* options, RawTexts* raw) {
  AddRun(AddVerb(app, options, "run", "run a command in a new machine: run [options] -- CMD ..."),
         options, raw);
  CLI::App* exec = AddVerb(app, options, "exec",
                           "run a command in a kept machine (which is started if it is stopped)");
  AddName(exec, options, raw);
  AddCommandOptions(exec, options, raw);
  CLI::App* list = AddVerb(app, options, "list", "the machines of this user, or those named");
  AddName(list, options, raw);
  list->add_flag("--json", options->json, "as JSON");
  CLI::App* accelerator =
      AddVerb(app, options, "accelerator", "what machines run on here, and why");
  accelerator->add_flag("--json", options->json, "as JSON");
  accelerator->add_flag("--retry", options->retry, "try KVM, whatever came of it before");
  CLI::App* stop = AddVerb(app, options, "stop", "power machines off; returns when they are");
  CLI::App* remove = AddVerb(app, options, "delete", "remove machines and their files");
  CLI::App* prune =
      AddVerb(app, options, "prune", "remove machines; with --all their images in the cache too");
  for (CLI::App* sub : {stop, remove, prune}) {
    AddName(sub, options, raw);
    sub->add_flag("--force", options->force, "end a running machine at once, whatever runs in it");
  }
  // A stopped machine still needs its image, so there is nothing for stop to take along.
  stop->add_flag("--cascade", options->cascade)->group("");
  remove->add_flag("--cascade", options->cascade,
                   "take along what only this machine uses (its image in the cache)");
  prune->add_flag("--all", options->all, "a running machine too, and its image in the cache");
  CLI::App* supervise = AddVerb(app, options, "supervise", "")->group("");
  supervise->add_option("--record", options->record)->required();
  supervise->add_option("--owner-fd", options->owner_fd)->required();
  supervise->add_option("--lock-fd", options->lock_fd)->required();
}

std::string_view UsageOf(const std::string& verb) {
  if (verb == "accelerator") return "[OPTIONS]";
  if (verb == "run") return "[OPTIONS] [-- CMD...]";
  if (verb == "exec") return "[OPTIONS] NAME -- CMD...";
  if (verb == "list") return "[OPTIONS] [NAME...]";
  return "[OPTIONS] NAME...";
}

// CLI11 knows of neither the command after "--" nor of names that --name may stand for.
std::string HelpOf(const CLI::App& verb) {
  std::string text = verb.help("smolvm machine");
  const size_t at = text.find("[OPTIONS]");
  if (at == std::string::npos) return text;
  return text.replace(at, text.find('\n', at) - at, UsageOf(verb.get_name()));
}

// One way of naming machines, each once, in the order given.
void TakeNames(Options* options, const RawTexts& raw) {
  if (options->verb == "run" || options->verb == "supervise" || options->verb == "accelerator")
    return;
  std::vector<std::string> given = raw.arguments;
  if (raw.name_given && !given.empty()) {
    Fail("{} takes a machine's name as an argument ('{}') or with --name ('{}'), not both",
         options->verb, given.front(), options->name);
  }
  if (raw.name_given) given = {std::exchange(options->name, "")};
  if (options->verb == "exec" && given.size() > 1) {
    Fail("exec takes one machine's name, and not '{}' too; a command goes after '--'", given[1]);
  }
  for (std::string& name : given) {
    CheckName(name);
    if (std::find(options->names.begin(), options->names.end(), name) == options->names.end())
      options->names.push_back(std::move(name));
  }
  if (options->names.empty() && options->verb != "list") {
    Fail(
        "{} needs a machine's name, as an argument or with --name; 'smolvm machine list' shows "
        "them",
        options->verb);
  }
}

void Check(const Options& options, const RawTexts& raw) {
  if (raw.gpu) {
    Fail(
        "--gpu is Vulkan graphics, a different feature, which is not offered here; --cuda is CUDA");
  }
  if (raw.name_given && options.verb == "run") CheckName(options.name);
  if (!options.workdir.empty() && options.workdir[0] != '/') {
    Fail("--workdir {}: it must be an absolute path in the machine", options.workdir);
  }
  if (options.verb == "exec" && options.command.empty()) Fail("exec needs a command after '--'");
  if (options.detach && options.name.empty() && options.command.empty()) {
    Fail("--detach without --name needs a command after '--'");
  }
  if (options.detach && (options.interactive || options.tty)) {
    Fail("--detach does not go with -i or -t");
  }
}

}  // namespace

uint64_t ParseDuration(const std::string& text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string unit(end, text.data() + text.size());
  const uint64_t factor = unit == "ms"                ? 1
                          : unit == "s" || unit == "" ? 1000
                          : unit == "m"               ? 60000
                          : unit == "h"               ? 3600000
                                                      : 0;
  if (error != std::errc() || factor == 0 || number == 0 || number > UINT32_MAX) {
    Fail("'{}' is not a time; 30s, 5m and 1h are", text);
  }
  return number * factor;
}

// In the machine a level that is none would only be a line in a log.
void CheckLogLevel(std::string_view entry) {
  constexpr std::string_view kLevel = "SMOLVM_CUDA_LOG=";
  if (!entry.starts_with(kLevel) || entry == kLevel) return;
  log::Level level;
  if (!log::ParseLevel(entry.substr(kLevel.size()), &level))
    Fail("--env {}: the levels are off, error, warn, info and debug", entry);
}

std::string ParseEnv(const std::string& text) {
  const size_t equals = text.find('=');
  if (text.empty() || equals == 0) Fail("--env '{}' is not of the form KEY=VALUE", text);
  std::string entry = text;
  if (equals == std::string::npos) {
    const char* value = std::getenv(text.c_str());
    if (value == nullptr) Fail("--env {}: it is not set here; give it a value", text);
    entry.append("=").append(value);
  }
  CheckLogLevel(entry);
  return entry;
}

Options ParseOptions(int argc, const char* const* argv) {
  Options options;
  RawTexts raw;
  CLI::App app("Runs microVMs, with CUDA inside.", "smolvm machine");
  app.require_subcommand(1);
  AddVerbs(&app, &options, &raw);
  if (argc > 1 && argv[1][0] == '-' && !IsHelp(argv[1])) {
    Fail("'{}' is not an option of smolvm machine itself; 'smolvm machine --help' tells more",
         argv[1]);
  }
  try {
    if (argc > 1 && argv[1][0] != '-') app.get_subcommand(std::string(argv[1]));
  } catch (const CLI::OptionNotFound&) {
    Fail("'{}' is not a command of smolvm machine; 'smolvm machine --help' lists them", argv[1]);
  }
  // Everything after the first "--" is the command's, whatever it looks like.
  int own = 1;
  while (own < argc && std::string_view(argv[own]) != "--") ++own;
  if (own < argc) options.command.assign(argv + own + 1, argv + argc);
  std::vector<std::string> words(argv + 1, argv + own);
  std::reverse(words.begin(), words.end());  // as CLI11 takes a vector
  try {
    app.parse(words);
  } catch (const CLI::CallForHelp&) {
    const auto chosen = app.get_subcommands();
    throw ParseEnd{chosen.empty() ? app.help() : HelpOf(*chosen[0]), 0};
  } catch (const CLI::ExtrasError& error) {
    Fail("{}; a command goes after '--' ('smolvm machine --help' tells the rest)", error.what());
  } catch (const CLI::ParseError& error) {
    Fail("{}; 'smolvm machine --help' tells more", error.what());
  }
  for (const CLI::App* sub : app.get_subcommands()) {
    const CLI::Option* name = sub->get_option_no_throw("--name");
    raw.name_given = name != nullptr && name->count() > 0;
  }
  for (const std::string& text : raw.env) options.env.push_back(ParseEnv(text));
  if (!raw.timeout.empty()) options.timeout_ms = ParseDuration(raw.timeout);
  if (!raw.ready_timeout.empty()) {
    options.ready_timeout_s = std::max<uint64_t>(1, ParseDuration(raw.ready_timeout) / 1000);
  }
  TakeNames(&options, raw);
  Check(options, raw);
  return options;
}

}  // namespace smolvm::machine
