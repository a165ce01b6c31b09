// The guest's RAM, mapped into this process.
//
// A vhost-user front end describes guest memory as up to eight regions, each a file descriptor with
// a place in guest physical memory ("guest address", which descriptors in a ring hold) and in the
// front end's own memory ("user address", which SET_VRING_ADDR holds).
//
// Every address below comes from the guest or from the front end, so every look-up is bounded and
// none trusts a sum that may have wrapped.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <string>
#include <vector>

#include "protocol/base/unique_fd.h"

namespace smolvm::vsock {

// The most regions that SET_MEM_TABLE may carry (vhost-user: "Memory regions description").
inline constexpr int kMaxMemoryRegions = 8;

struct MemoryRegion {
  uint64_t guest_addr = 0;
  uint64_t size = 0;
  uint64_t user_addr = 0;
  uint64_t file_offset = 0;  // where in `fd` the region begins
  UniqueFd fd;
};

// Lifetime: what Translate, Contiguous and FromUser return points into the mapping, and is valid
// until this object is destroyed.
// Threads: const members may be called from any thread.
class GuestMemory {
 public:
  GuestMemory() = default;
  ~GuestMemory();
  GuestMemory(const GuestMemory&) = delete;
  GuestMemory& operator=(const GuestMemory&) = delete;

  // Maps `regions`; call once. False, with a reason, if one cannot be mapped whole, wraps round the
  // address space or overlaps another. The file must be as long as the region claims, because an
  // access behind its end would raise SIGBUS.
  bool Map(std::vector<MemoryRegion> regions, std::string* error);

  bool empty() const { return mapped_.empty(); }
  const std::vector<MemoryRegion>& regions() const { return regions_; }

  // Appends the host memory behind guest addresses [addr, addr + len) to `out`: one entry, or
  // several where the range crosses from one region into an adjacent one. False if any byte of it
  // is not guest memory; `out` may then hold a part.
  bool Translate(uint64_t addr, uint64_t len, std::vector<iovec>* out) const;
  // The same for a range that has to lie in one region; null if it does not.
  uint8_t* Contiguous(uint64_t addr, uint64_t len) const;
  // The same for the front end's own addresses.
  uint8_t* FromUser(uint64_t addr, uint64_t len) const;

 private:
  struct Mapping {
    uint64_t guest_addr;
    uint64_t user_addr;
    uint64_t size;
    uint8_t* base;   // where the region begins
    void* map_addr;  // what mmap returned, a little before it
    uint64_t map_length;
  };
  bool MapOne(const MemoryRegion& region, std::string* error);
  const Mapping* Find(uint64_t addr) const;

  std::vector<MemoryRegion> regions_;
  std::vector<Mapping> mapped_;
};

}  // namespace smolvm::vsock
