#include "host-daemon/driver/driver.h"

#include <dlfcn.h>

namespace smolvm::driver {

bool LoadDriver(const std::string& path, DriverTable* table, std::string* error) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    *error = dlerror();
    return false;
  }
  FillDriverTable(dlsym, library, table);
  if (!table->cuInit) {
    *error = path + " exports no cuInit";
    return false;
  }
  return true;
}

}  // namespace smolvm::driver
