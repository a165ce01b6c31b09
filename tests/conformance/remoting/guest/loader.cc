// remoting_loader COMMAND LIBRARY [FILE]: loads the guest's library as programs do that were not
// linked with it.
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

namespace {

using Init = int (*)(unsigned);
using GetCount = int (*)(int*);

int Fail(const char* what) {
  fprintf(stderr, "%s: %s\n", what, dlerror());
  return 1;
}

// Every name in `list` is found.
int Exports(void* library, const char* list) {
  std::ifstream in(list);
  int found = 0, missing = 0;
  for (std::string name; std::getline(in, name);) {
    if (name.empty() || name[0] == '#') continue;
    if (dlsym(library, name.c_str())) {
      ++found;
    } else {
      ++missing;
      fprintf(stderr, "missing: %s\n", name.c_str());
    }
  }
  printf("found=%d missing=%d\n", found, missing);
  return missing != 0 || found < 500;
}

int Use(void* library) {
  const auto init = reinterpret_cast<Init>(dlsym(library, "cuInit"));
  const auto get_count = reinterpret_cast<GetCount>(dlsym(library, "cuDeviceGetCount"));
  int count = 0;
  if (!init || !get_count) return Fail("dlsym");
  const int result = init(0);
  if (result != 0 || get_count(&count) != 0 || count != 1) {
    fprintf(stderr, "cuInit: %d, devices: %d\n", result, count);
    return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const std::string command = argv[1];
  if (!dlopen(nullptr, RTLD_NOW)) return Fail("dlopen of the program");
  for (int round = 0; round < 3; ++round) {
    void* library = dlopen(argv[2], round % 2 ? RTLD_LAZY | RTLD_GLOBAL : RTLD_NOW | RTLD_LOCAL);
    if (!library) return Fail("dlopen");
    if (!dlopen(nullptr, RTLD_NOW)) return Fail("dlopen of the program");
    if (command == "exports") return Exports(library, argv[3]);
    if (command == "use" && Use(library) != 0) return 1;
    if (dlclose(library) != 0) return Fail("dlclose");
  }
  return 0;
}
