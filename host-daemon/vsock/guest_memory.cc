#include "host-daemon/vsock/guest_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "host-daemon/limits/address_space.h"
#include "protocol/base/file_status.h"

namespace smolvm::vsock {
namespace {

bool Wraps(uint64_t start, uint64_t size) { return start + size < start; }

// Whether [addr, addr + len) lies in [start, start + size), for a region that does not wrap.
bool Within(uint64_t addr, uint64_t len, uint64_t start, uint64_t size) {
  return addr >= start && addr - start <= size && len <= size - (addr - start);
}

bool Overlap(const MemoryRegion& a, const MemoryRegion& b) {
  return a.guest_addr < b.guest_addr + b.size && b.guest_addr < a.guest_addr + a.size;
}

}  // namespace

GuestMemory::~GuestMemory() {
  for (const Mapping& m : mapped_) munmap(m.map_addr, m.map_length);
}

bool GuestMemory::Map(std::vector<MemoryRegion> regions, std::string* error) {
  for (size_t i = 0; i < regions.size(); ++i) {
    const MemoryRegion& r = regions[i];
    if (r.size == 0 || Wraps(r.guest_addr, r.size) || Wraps(r.user_addr, r.size) ||
        Wraps(r.file_offset, r.size)) {
      *error =
          fmt::format("region {} has an impossible range: guest {:#x}, size {:#x}, offset {:#x}", i,
                      r.guest_addr, r.size, r.file_offset);
      return false;
    }
    for (size_t j = 0; j < i; ++j) {
      if (Overlap(r, regions[j])) {
        *error = fmt::format("regions {} and {} overlap", j, i);
        return false;
      }
    }
    if (!MapOne(r, error)) return false;
  }
  regions_ = std::move(regions);
  return true;
}

bool GuestMemory::MapOne(const MemoryRegion& region, std::string* error) {
  struct stat st;
  if (!StatusOf(region.fd.get(), &st)) {
    *error = fmt::format("fstat of guest memory: {}", strerror(errno));
    return false;
  }
  if (static_cast<uint64_t>(st.st_size) < region.file_offset + region.size) {
    *error =
        fmt::format("guest memory file of {:#x} bytes is shorter than its region ({:#x}+{:#x})",
                    st.st_size, region.file_offset, region.size);
    return false;
  }
  // hugetlbfs wants offset and length in whole huge pages; for it, and for memfd, st_blksize is the
  // page size.
  const uint64_t page = std::max<uint64_t>(st.st_blksize, sysconf(_SC_PAGESIZE));
  const uint64_t skip = region.file_offset % page;
  const uint64_t length = (region.size + skip + page - 1) / page * page;
  void* addr = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                    region.fd.get(), static_cast<off_t>(region.file_offset - skip));
  if (addr == MAP_FAILED) {
    *error = fmt::format("mmap of {:#x} bytes of guest memory: {}{}", length, strerror(errno),
                         AddressSpaceNote());
    return false;
  }
  madvise(addr, length, MADV_DONTDUMP);  // a core file of ours should not hold the guest's data
  mapped_.push_back({region.guest_addr, region.user_addr, region.size,
                     static_cast<uint8_t*>(addr) + skip, addr, length});
  return true;
}

const GuestMemory::Mapping* GuestMemory::Find(uint64_t addr) const {
  for (const Mapping& m : mapped_) {
    if (addr >= m.guest_addr && addr - m.guest_addr < m.size) return &m;
  }
  return nullptr;
}

bool GuestMemory::Translate(uint64_t addr, uint64_t len, std::vector<iovec>* out) const {
  while (len > 0) {
    const Mapping* m = Find(addr);
    if (m == nullptr) return false;
    const uint64_t offset = addr - m->guest_addr;
    const uint64_t here = std::min(len, m->size - offset);
    out->push_back({m->base + offset, here});
    addr += here;
    len -= here;
    if (len > 0 && addr == 0) return false;  // ran off the end of the address space
  }
  return true;
}

uint8_t* GuestMemory::Contiguous(uint64_t addr, uint64_t len) const {
  const Mapping* m = Find(addr);
  if (m == nullptr || !Within(addr, len, m->guest_addr, m->size)) return nullptr;
  return m->base + (addr - m->guest_addr);
}

uint8_t* GuestMemory::FromUser(uint64_t addr, uint64_t len) const {
  for (const Mapping& m : mapped_) {
    if (Within(addr, len, m.user_addr, m.size)) return m.base + (addr - m.user_addr);
  }
  return nullptr;
}

}  // namespace smolvm::vsock
