#include "cache/record/listing.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <new>

#include "cache/base/memory/own_place.h"
#include "cache/base/sys.h"

namespace cube::cache {

namespace sys = base::sys;

base::Result<Listing*> Listing::make(std::string_view prefix, std::string_view below,
                                     const FileStat& stat, std::uint64_t bytes) {
  const std::size_t length = prefix.size() + (below.empty() ? 0 : 1 + below.size());
  if (length >= PATH_MAX) return base::fail(ENAMETOOLONG);
  // Leaves room for a whole dirent at the end, because some programs copy the whole structure even
  // if the name is short.
  const std::uint64_t mapped = sizeof(Listing) + bytes + sizeof(struct ::dirent);
  const long at = sys::mmap(base::own_place(mapped), mapped, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (sys::failed(at)) return base::fail(static_cast<int>(-at));
  auto* const listing = new (reinterpret_cast<void*>(at)) Listing;
  listing->stat_ = stat;
  listing->mapped_ = mapped;
  listing->path_length_ = length;
  std::memcpy(listing->path_, prefix.data(), prefix.size());
  if (!below.empty()) {
    listing->path_[prefix.size()] = '/';
    std::memcpy(listing->path_ + prefix.size() + 1, below.data(), below.size());
  }
  listing->path_[length] = '\0';
  return listing;
}

void Listing::release() { sys::munmap(this, mapped_); }

void Listing::add(std::string_view name, std::uint64_t inode, std::uint8_t type) {
  struct ::dirent* const entry = at(end_);
  end_ += entry_bytes(name.size());
  entry->d_ino = inode;
  entry->d_off = static_cast<off_t>(end_);
  entry->d_reclen = static_cast<std::uint16_t>(entry_bytes(name.size()));
  entry->d_type = type;
  // The name needs no terminating zero, because the memory already contains zeros.
  std::memcpy(reinterpret_cast<char*>(entry) + k_name_at, name.data(), name.size());
}

void Listing::add_all(std::span<const std::byte> entries) {
  std::memcpy(reinterpret_cast<std::byte*>(at(0)), entries.data(), entries.size());
  end_ = entries.size();
}

std::int64_t Listing::offset_at(std::uint64_t position) {
  std::int64_t offset = 0;
  for (std::uint64_t here = 0; here < position && here < end_; here += at(here)->d_reclen)
    offset = at(here)->d_off;
  return offset;
}

std::optional<std::uint64_t> Listing::position_of(std::int64_t offset) {
  if (offset == 0) return 0;
  for (std::uint64_t here = 0; here < end_;) {
    const bool is_it = at(here)->d_off == offset;
    here += at(here)->d_reclen;
    if (is_it) return here;
  }
  return std::nullopt;
}

std::uint64_t Listing::round_up(std::uint64_t position) {
  std::uint64_t here = 0;
  while (here < position && here < end_) here += at(here)->d_reclen;
  return here;
}

std::uint64_t Listing::end_of(std::uint64_t position, std::size_t n) {
  std::uint64_t here = position;
  while (here < end_ && here + at(here)->d_reclen - position <= n) here += at(here)->d_reclen;
  return here;
}

}  // namespace cube::cache
