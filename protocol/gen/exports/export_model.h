// The driver library's export list, and how it pairs with the versions in cudaTypedefs.h.
//
// cuGetProcAddress answers for a base name ("cuMemAlloc") and a CUDA version. cudaTypedefs.h names
// each version of each function (PFN_cuMemAlloc_v2000, PFN_cuMemAlloc_v3020) but not its symbol;
// the export list names each symbol (cuMemAlloc, cuMemAlloc_v2) but not its version. Both are in
// the same order, per base name and stream variant, so sorting pairs them.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace smolvm::exports {

// One symbol that cuGetProcAddress can find.
struct ProcRow {
  std::string base;    // "cuMemcpyHtoD"
  bool per_thread;     // a _ptds or _ptsz symbol: the NULL stream is the calling thread's own
  int version;         // 1000 × major + 10 × minor of the CUDA version that brought it
  std::string symbol;  // "cuMemcpyHtoD_v2_ptds"
};

// Reads one name a line; '#' begins a comment. Throws std::runtime_error on a name that is not cu*
// or comes twice.
std::vector<std::string> ParseExportList(std::string_view text);

// Base name and variant → the versions that have a PFN_ typedef.
using TypedefVersions = std::map<std::pair<std::string, bool>, std::set<int>>;
void ScanTypedefs(std::string_view header, TypedefVersions* versions);

// Rows sorted by base, variant and version. A newer header may know versions that the list lacks:
// those are left out. Throws std::runtime_error when a listed symbol has no typedef.
std::vector<ProcRow> PairVersions(const std::vector<std::string>& names,
                                  const TypedefVersions& versions);

// A `typedef enum … { … } NAME;` of a header, with the names of its enumerators.
struct EnumType {
  std::string name;
  std::vector<std::string> enumerators;
};
std::vector<EnumType> ScanEnums(std::string_view header);

}  // namespace smolvm::exports
