// Tables that are about all calls: ids, the driver's entry points, the tests' recording driver, the
// coverage page.
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "protocol/gen/model.h"

namespace smolvm::gen {
namespace {

// Every symbol of a call that the host's driver may be asked for.
std::vector<std::string> DriverSymbols(const CallModel& call) {
  std::vector<std::string> symbols{call.name};
  if (!call.variant.empty()) symbols.push_back(call.name + call.variant);
  return symbols;
}

// "cuMemAlloc_v2_ptds" → "cuMemAlloc".
std::string BaseName(std::string symbol) {
  for (const char* suffix : {"_ptds", "_ptsz"}) {
    if (symbol.ends_with(suffix)) symbol.erase(symbol.size() - 5);
  }
  const size_t version = symbol.rfind("_v");
  if (version != std::string::npos &&
      symbol.find_first_not_of("0123456789", version + 2) == std::string::npos) {
    symbol.erase(version);
  }
  return symbol;
}

std::string Version(uint32_t since) {
  return fmt::format("{}.{}", since / 1000, since % 1000 / 10);
}

}  // namespace

std::string EmitCallIds(const Model& model) {
  std::string text = Banner() +
                     "#pragma once\n#include <cstdint>\n\nnamespace smolvm::api {\n\n"
                     "// Of every call that may be sent. The guest tells the host which it knows, "
                     "and the other way round.\n"
                     "inline constexpr uint32_t kCallIds[] = {\n";
  for (const CallModel* call : model.calls()) {
    if (!call->local()) text += fmt::format("    {},  // {}\n", call->id(), call->name);
  }
  text += "};\n\nnamespace id {\n";
  for (const CallModel* call : model.calls()) {
    text += fmt::format("inline constexpr uint32_t {} = {};\n", call->name, call->id());
  }
  return text + "}  // namespace id\n\n}  // namespace smolvm::api\n";
}

std::string EmitDriverTableHeader(const Model& model) {
  std::string text =
      Banner() +
      "#pragma once\n#include <cuda.h>\n\nnamespace smolvm::driver {\n\n"
      "// The driver's entry points, found by name. Null where the driver is older than the call.\n"
      "struct DriverTable {\n";
  for (const CallModel* call : model.calls()) {
    for (const std::string& symbol : DriverSymbols(*call)) {
      text += fmt::format("  decltype(&::{}) {} = nullptr;\n", call->name, symbol);
    }
  }
  return text +
         "};\n\n// `find` returns the address of a symbol, or null.\n"
         "void FillDriverTable(void* (*find)(void* library, const char* symbol), void* library, "
         "DriverTable* table);\n\n"
         "}  // namespace smolvm::driver\n";
}

std::string EmitDriverTableSource(const Model& model) {
  std::string text =
      Banner() +
      "#include \"protocol/api/driver_table.h\"\n\nnamespace smolvm::driver {\n\n"
      "void FillDriverTable(void* (*find)(void*, const char*), void* library, DriverTable* table) "
      "{\n"
      "  const auto get = [&](auto& entry, const char* symbol) {\n"
      "    entry = reinterpret_cast<std::remove_reference_t<decltype(entry)>>(find(library, "
      "symbol));\n"
      "  };\n";
  for (const CallModel* call : model.calls()) {
    for (const std::string& symbol : DriverSymbols(*call)) {
      text += fmt::format("  get(table->{0}, \"{0}\");\n", symbol);
    }
  }
  text = text.insert(text.find("\n\nnamespace"), "\n\n#include <type_traits>");
  return text + "}\n\n}  // namespace smolvm::driver\n";
}

std::string EmitRecordingDriver(const Model& model) {
  std::string text =
      Banner() +
      "// A driver for tests: each entry point is a std::function, so that a test sees what "
      "arrived and says\n"
      "// what comes back. An entry that a test did not set returns CUDA_ERROR_UNKNOWN.\n"
      "#pragma once\n#include <functional>\n#include <mutex>\n#include <string>\n#include "
      "<vector>\n\n"
      "#include \"protocol/api/driver_table.h\"\n\nnamespace smolvm::driver {\n\n"
      "struct RecordingDriver {\n"
      "  // The names of the calls that arrived, in order.\n"
      "  std::vector<std::string> calls;\n  std::mutex mutex;\n"
      "  void Note(const char* name) {\n    const std::lock_guard lock(mutex);\n    "
      "calls.push_back(name);\n"
      "  }\n  // One at a time: the table's functions have nowhere to keep a pointer.\n"
      "  static inline RecordingDriver* current = nullptr;\n  RecordingDriver() { current = this; "
      "}\n"
      "  ~RecordingDriver() { current = nullptr; }\n  DriverTable Table();\n\n";
  std::string fill;
  for (const CallModel* call : model.calls()) {
    for (const std::string& symbol : DriverSymbols(*call)) {
      text += fmt::format("  std::function<CUresult({})> {};\n", call->declaration(), symbol);
      fill += fmt::format(
          "  table.{0} = []({1}) -> CUresult {{\n    current->Note(\"{0}\");\n"
          "    return current->{0} ? current->{0}({2}) : CUDA_ERROR_UNKNOWN;\n  }};\n",
          symbol, call->declaration(), call->param_names());
    }
  }
  return text + "};\n\ninline DriverTable RecordingDriver::Table() {\n  DriverTable table;\n" +
         fill + "  return table;\n}\n\n}  // namespace smolvm::driver\n";
}

std::string EmitCallTable(const Model& model, const std::string& reasons_path,
                          const std::set<std::string>& native) {
  struct Row {
    std::vector<std::string> served, missing;
    const CallModel* call = nullptr;
    bool native = false;
  };
  std::map<std::string, const CallModel*> served;
  for (const CallModel* call : model.calls()) {
    for (const std::string& symbol : DriverSymbols(*call)) served[symbol] = call;
    for (const std::string& symbol : call->legacy) served[symbol] = call;
  }
  std::map<std::string, Row> rows;
  for (const std::string& symbol : model.exports) {
    Row& row = rows[BaseName(symbol)];
    row.native |= native.contains(symbol);
    const auto found = served.find(symbol);
    (found == served.end() ? row.missing : row.served).push_back(symbol);
    if (found != served.end()) row.call = found->second;
  }
  const std::vector<std::string> reasons = ReadLines(reasons_path);
  const auto why = [&](const std::string& name) {
    for (const std::string& line : reasons) {
      const size_t space = line.find(' ');
      if (name.starts_with(line.substr(0, space))) return line.substr(space + 1);
    }
    throw std::runtime_error(name + ": protocol/api/unsupported_reasons.txt says nothing about it");
  };
  size_t whole = 0, partly = 0, differ = 0;
  std::string table;
  for (const auto& [name, row] : rows) {
    std::string state = "supported", note;
    if (!row.call) {
      state = "not";
      note = why(name);
    } else if (!row.call->options.partly().empty()) {
      state = "partly";
      note = row.call->options.partly();
      ++partly;
    } else {
      ++whole;
    }
    if (row.call && !row.missing.empty()) {
      std::string old;
      for (const std::string& symbol : row.missing)
        old += (old.empty() ? "`" : ", `") + symbol + "`";
      note += (note.empty() ? "" : "; ") + old + ": 32-bit or superseded form, not supported";
    }
    differ += row.native != (row.call != nullptr);
    table +=
        fmt::format("| `{}` | {} | {} | {} | {} |\n", name, state, row.native ? "has it" : "not",
                    row.call ? Version(row.call->options.since()) : "", note);
  }
  return fmt::format(
      "# Driver calls\n\nGenerated from `protocol/api` at build time; do not edit. The guest's "
      "`libcuda.so.1` exports every "
      "symbol of the\nCUDA 13.0 driver library ({} symbols, {} functions). A function that is not "
      "supported returns "
      "`CUDA_ERROR_NOT_SUPPORTED`\nand is logged once (`SMOLVM_CUDA_LOG=warn`); `dlsym` and "
      "`cuGetProcAddress` find it all the same, at one address.\n\n{} supported, "
      "{} partly, {} not.\n\n"
      "The emulation library exports the same symbols, and a program can use it natively "
      "(docs/emulation.md). Where a function\nis there on one side only ({} functions), the other "
      "returns `CUDA_ERROR_NOT_SUPPORTED`.\n\n"
      "| function | remoted | emulation library | since CUDA | note |\n|---|---|---|---|---|\n{}",
      model.exports.size(), rows.size(), whole, partly, rows.size() - whole - partly, differ,
      table);
}

}  // namespace smolvm::gen
