// What the generated stubs of unsupported_stubs.cc call, and the table of every exported function.
#pragma once

extern "C" {

struct SmolvmExport {
  const char* name;
  void* address;  // of the strong definition in this library if there is one, else of its stub
};

// Sorted by name. Defined by the generated unsupported_stubs.cc.
extern const SmolvmExport smolvm_export_table[];
extern const unsigned smolvm_export_count;

// Logs `name` once per process, and returns CUDA_ERROR_NOT_SUPPORTED, or what the guard below
// returns. Any thread.
int smolvm_unsupported_call(const char* name);
}

namespace smolvm::exports {

// A check that a stub makes first: its result, when not 0, is the call's
// (CUDA_ERROR_NOT_INITIALIZED before cuInit).
void SetUnsupportedGuard(int (*guard)());

// The function that this library exports as `symbol`; null when it exports no such name.
void* ExportAddress(const char* symbol);

}  // namespace smolvm::exports
