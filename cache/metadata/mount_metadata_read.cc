// MountMetadata: reads a directory at the origin and publishes its listing in the region.
#include <dirent.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "cache/base/clock.h"
#include "cache/base/hash.h"
#include "cache/base/memory/scratch.h"
#include "cache/metadata/mount_metadata.h"
#include "cache/origin/links_on_way.h"
#include "cache/record/recent_change.h"
#include "cache/region/directory_watch.h"
#include "cache/region/fetch_scope.h"

namespace cube::cache {
namespace {

namespace sys = base::sys;

// Reads the entries in the form of getdents64. Empty: an error occurred, or the entries take more
// than `most` bytes. In the second case, `is_long` is true.
std::span<const std::byte> read_entries(int fd, base::Scratch (&rooms)[2], std::uint64_t most,
                                        bool& is_long) {
  constexpr std::size_t k_first_room = 1 << 20, k_least = 64 << 10;
  std::size_t room = k_first_room, used = 0;
  int which = 0;
  std::byte* to = rooms[which].reserve(room);
  while (to != nullptr) {
    is_long = used > most;
    if (is_long) return {};
    if (room - used < k_least) {
      std::byte* const more = rooms[1 - which].reserve(room * 2);
      if (more == nullptr) return {};
      std::memcpy(more, to, used);
      which = 1 - which;
      to = more;
      room *= 2;
    }
    const long n =
        sys::raw(SYS_getdents64, fd, sys::arg(to + used), static_cast<long>(room - used));
    if (n == -EINTR) continue;
    if (sys::failed(n)) return {};
    if (n == 0) return {to, used};
    used += static_cast<std::size_t>(n);
  }
  return {};
}

// Whether this process may search the directory. Opening a path below the directory requires this
// right, but listing the directory does not.
bool may_search(int fd) {
  const long there = sys::openat(fd, ".", O_PATH | O_CLOEXEC);
  if (sys::failed(there)) return false;
  sys::close(static_cast<int>(there));
  return true;
}

// Registers the fd, so that it is closed after a jump out of the fetch.
class NotedFd {
 public:
  explicit NotedFd(base::UniqueFd& fd) : fd_(fd), is_noted_(FetchScope::note_fd(fd.get())) {}
  ~NotedFd() {
    if (is_noted_ && !FetchScope::let_go_of_fd(fd_.get())) static_cast<void>(fd_.release());
  }
  NotedFd(const NotedFd&) = delete;
  NotedFd& operator=(const NotedFd&) = delete;

 private:
  base::UniqueFd& fd_;
  bool is_noted_;
};

}  // namespace

// The existing record, if the origin has just returned the same listing.
Pin MountMetadata::still_listed(const RecordContent& content,
                                std::span<const std::byte> entries) const {
  Pin found = directory(content.path);
  const auto data = found ? DirectoryData::of(*found) : std::nullopt;
  const bool is_same = data && found->stat.is_unchanged_since(content.stat) &&
                       found->is_physical() == content.physical &&
                       std::ranges::equal(data->entries(), entries);
  if (!is_same) return {};
  ram_->mark_verified(*found, content.verified_ns);
  return found;
}

Pin MountMetadata::read(std::string_view key, const char* path, std::uint64_t most_bytes,
                        Read& read) {
  if (Pin stored = read_from_tiers(key, path)) return stored;
  base::UniqueFd& fd = read.fd;
  DirectoryWatch watch(*region_);
  RecordContent content;
  content.kind = RecordKind::directory;
  content.path = key;
  content.fetched_ns = base::wall_ns();
  content.verified_ns = base::boot_ns();
  LinksOnWay links = LinksOnWay::unknown;
  const long opened =
      open_noting_links(path, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC, links);
  if (sys::failed(opened)) return {};
  fd = base::UniqueFd(static_cast<int>(opened));
  const NotedFd noted(fd);
  // Without room for the listing, each opendir would read the directory twice: here and in the
  // program.
  if (!has_room_for(k_least_room)) return {};
  std::atomic<std::uint64_t>& no_room = no_room_[base::hash_path(key) % k_no_room];
  if (no_room.load(std::memory_order_relaxed) == base::hash_path(key)) return {};
  const auto stat = stat_fd(fd.get());
  if (!stat) return {};
  content.stat = *stat;
  content.physical = links == LinksOnWay::none;
  // Must precede the read of the entries, because a process that changes them reports the change
  // only if the device is known.
  ram_->note_device(stat->device());
  watch.watch(*stat);
  // If the directory was changed just now, a second change within the same tick of its clock could
  // not be revealed by a later stat.
  if (is_within_step(stat->modified, content.fetched_ns) ||
      may_hide_change(*stat, content.fetched_ns))
    return {};
  if (!may_search(fd.get())) return {};
  base::Scratch rooms[2];
  const auto entries =
      read_entries(fd.get(), rooms, std::min(most_bytes, most_bytes_), read.is_long);
  region_->stats().count(base::Counter::metadata_read);
  if (read.is_long && most_bytes >= most_bytes_)
    no_room.store(base::hash_path(key), std::memory_order_relaxed);
  const auto count = DirectoryData::count_of(entries);
  Pin made;
  // A file system that omits "." and ".." may return an empty listing, which is not kept.
  if (count && *count != 0) {
    made = still_listed(content, entries);
    if (made) return made;
    const DirectoryData::Proves proves{.proves_negative_entries = proof_.proves_negative_entries(
                                           fd.get(), stat->device(), entries),
                                       .has_true_times = times_.are_kept(fd.get(), stat->device())};
    made = publish(content, DirectoryData::bytes_for(*count, entries.size()), watch,
                   [&](std::byte* to) { DirectoryData::write(to, entries, *count, proves); });
  }
  if (!made) sys::lseek(fd.get(), 0, SEEK_SET);
  return made;
}

}  // namespace cube::cache
