#include "machine/launch/disk.h"

#include <fcntl.h>
#include <unistd.h>

#include "machine/supervise/helpers.h"
#include "machine/util/failure.h"
#include "machine/util/tool.h"

namespace smolvm::machine {
namespace {

// Of which only what is written takes room on the host.
constexpr off_t kDiskSize = off_t{16} << 30;

}  // namespace

void MakeChangesDisk(MachineStore& store, const std::string& name) {
  const std::string path = store.FolderOf(name) / kChangesDisk;
  try {
    {
      const UniqueFd disk(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
      if (!disk.valid() || ftruncate(disk.get(), kDiskSize) != 0) {
        Fail("cannot make the machine's disk: {}", ErrnoText());
      }
    }
    MustRun(
        {"mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=1,lazy_journal_init=1", path},
        {.doing = "making the machine's disk"});
  } catch (const Failure&) {
    store.Remove(name);
    throw;
  }
}

}  // namespace smolvm::machine
