#include "host-daemon/server/daemon.h"
#include "host-daemon/server/options.h"

int main(int argc, char** argv) {
  smolvm::server::Options options;
  const int status = smolvm::server::ParseOptions(argc, argv, &options);
  return status >= 0 ? status : smolvm::server::RunDaemon(options);
}
