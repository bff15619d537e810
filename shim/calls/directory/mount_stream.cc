#include "shim/calls/directory/mount_stream.h"

#include <dirent.h>

#include <cerrno>
#include <cstring>

#include "cache/base/memory/off_stack.h"
#include "cache/base/process/lifted_fd_limit.h"
#include "cache/base/unique_fd.h"
#include "cache/record/directory_data.h"
#include "shim/calls/directory/listing_prefetch.h"
#include "shim/calls/directory/unmounted_directory.h"
#include "shim/calls/new_fds.h"
#include "shim/fd/materialize.h"
#include "shim/path/path_filter.h"
#include "shim/process/attachment.h"
#include "shim/process/c_result.h"
#include "shim/threads/own_threads.h"

namespace cube::shim::mount_stream {
namespace {

namespace sys = base::sys;

constexpr int k_flags = O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC;

int open_covered(int dir, const char* path, CoveredPath& covered, bool& is_kernels) {
  if (!path_filter::covers_directory(dir, path, covered)) return k_kernels;
  auto* const cache = process::is_forking() ? nullptr : attachment::cache();
  if (cache == nullptr || !cache->metadata().is_on()) return k_kernels;
  // Some programs that search a tree call opendir on each entry to test whether it is a directory.
  if (cache->metadata().is_file(covered.key())) return -ENOTDIR;
  expect_new_fd();
  cache::MountMetadata::Listed listed = cache->metadata().list(covered.key(), covered.c_str());
  // Another thread, or a signal handler, may have parked an fd in the meantime.
  placeholder::fd_was_freed(0);
  if (listed.listing == nullptr && !listed.fd) return k_kernels;
  // The directory may have been made after its negative entry was cached.
  if (listed.is_from_origin)
    cache->corrections().learn(covered.key(), {.kinds = cache::Told::k_directory});
  is_kernels = listed.listing == nullptr;
  const int fd = is_kernels
                     ? listed.fd.release()
                     : unmounted_directory::serve(listed.listing, RowKind::mount_stream, k_flags);
  if (fd < 0) return k_kernels;
  if (is_kernels) {
    g_fds.forget(fd);
    g_fds.set_directory(fd);
  }
  if (listed.is_long) own_threads::wish_for(*cache, own_threads::Wish::list, covered.key());
  // The program visits directories in order and had to wait for this listing, so the next directory
  // is listed ahead.
  if (listed.was_worth_listing_ahead)
    own_threads::wish_for(*cache, own_threads::Wish::next, covered.key());
  listing_prefetch::note_listing(covered.key());
  own_threads::offer(*cache);
  return fd;
}

}  // namespace

bool may_have_any() {
  return process::is_active() && process::owns_table() && process::config().metadata &&
         process::origin_metadata() == nullptr;
}

int open(int dir, const char* path, bool& is_kernels) {
  if (!may_have_any() || !path_filter::may_lead_under_prefix(dir, path)) return k_kernels;
  const KeepErrno keep;
  return base::use_off_stack<CoveredPath>(
      [&](CoveredPath& covered) { return open_covered(dir, path, covered, is_kernels); });
}

long tell(OpenFile& file) {
  return file.directory->offset_at(file.offset.load(std::memory_order_acquire));
}

bool seek(OpenFile& file, long place) {
  const auto position = file.directory->position_of(place);
  if (position) file.offset.store(*position, std::memory_order_release);
  return position.has_value();
}

namespace {

using cache::DirectoryData;

// Bounds on the total number of opens tried and of entries visited.
constexpr int k_most_opens = 256, k_most_entries = 100'000;

// Finds a directory that another process or node has moved since its stream was opened. Searches
// only where a search is cheap. First, the search tries other names in the old parent directory.
// Then, for each ancestor up to the prefix, it tries the rest of the path below the siblings of the
// ancestor.
class Search {
 public:
  explicit Search(const cache::Listing& listing) : listing_(listing) {}
  // Searches one directory. `below` is the rest of the path after the name of an entry.
  long through(const char* directory, std::string_view below);

 private:
  long at(int directory, std::string_view name, std::string_view below);

  const cache::Listing& listing_;
  int opens_ = k_most_opens, entries_ = k_most_entries;
};

long Search::at(int directory, std::string_view name, std::string_view below) {
  base::OffStack path;
  if (!path || name.size() + below.size() + 1 > base::OffStack::k_bytes || opens_-- <= 0)
    return -ENOENT;
  std::memcpy(path.data(), name.data(), name.size());
  std::memcpy(path.data() + name.size(), below.data(), below.size());
  path.data()[name.size() + below.size()] = '\0';
  const long fd = sys::openat(directory, path.data(), k_flags | O_NOFOLLOW);
  if (sys::failed(fd)) return -ENOENT;
  const auto stat = cache::stat_fd(static_cast<int>(fd));
  if (stat && stat->same_file(listing_.stat())) return fd;
  sys::close(static_cast<int>(fd));
  return -ENOENT;
}

long Search::through(const char* directory, std::string_view below) {
  const base::Result<base::UniqueFd> own =
      base::open_fd(directory, O_RDONLY | O_DIRECTORY | O_NONBLOCK);
  base::OffStack room;
  if (!own || !room) return -ENOENT;
  while (entries_ > 0 && opens_ > 0) {
    const long n =
        sys::raw(SYS_getdents64, own->get(), sys::arg(room.data()), base::OffStack::k_bytes);
    if (n <= 0) return -ENOENT;
    DirectoryData::Entry entry;
    for (DirectoryData::Reader reader({room.bytes(), static_cast<std::size_t>(n)});
         reader.next(entry);) {
      --entries_;
      const bool may_be = (entry.type == DT_DIR || entry.type == DT_UNKNOWN) && !entry.is_dots();
      if (!may_be || (below.empty() && entry.inode != listing_.stat().inode)) continue;
      if (const long fd = at(own->get(), entry.name, below); !sys::failed(fd)) return fd;
    }
  }
  return -ENOENT;
}

// Returns an fd of the directory with the listing's inode, or -ENOENT if it is not found.
long open_moved(const cache::Listing& listing) {
  const std::string_view path = listing.path();
  base::OffStack above;
  if (!above) return -ENOENT;
  Search search(listing);
  std::size_t end = path.size();
  while (path_filter::covers_found(path.substr(0, end))) {
    const std::string_view below = path.substr(end);
    end = path.rfind('/', end - 1);
    const std::size_t length = end == 0 ? 1 : end;
    std::memcpy(above.data(), path.data(), length);
    above.data()[length] = '\0';
    if (const long fd = search.through(above.data(), below); !sys::failed(fd)) return fd;
    if (end == 0) break;
  }
  return -ENOENT;
}

// Opens the origin's own directory by the path of the stream's open, or by its new path if it was
// renamed. Returns the fd or -errno; -ENOENT means that the directory was removed or cannot be
// found.
long open_own(const OpenFile& file) {
  const cache::Listing& listing = *file.directory;
  const long real = sys::open(listing.path().data(), k_flags);
  if (!sys::failed(real)) {
    const auto stat = cache::stat_fd(static_cast<int>(real));
    if (stat && stat->same_file(listing.stat())) return real;
    sys::close(static_cast<int>(real));
  } else if (real != -ENOTDIR && real != -ENOENT) {
    return real;
  }
  return open_moved(listing);
}

bool is_own(const OpenFile& file, int fd) {
  const auto stat = file.is_origin() ? cache::stat_fd(fd) : base::fail(EBADF);
  return stat && stat->same_file(file.directory->stat());
}

void hold(int fd) {
  const BlockSignals block;
  const OpenFileRef file = acquire(fd);
  if (!file || file->is_origin()) return;
  const long real = base::within_lifted_fd_limit([&] { return open_own(*file); });
  if (sys::failed(real)) return;
  const int own = static_cast<int>(real);
  std::uint64_t row = 0;
  if (g_fds.lock_if(fd, file.get(), row, RowKind::mount_stream)) {
    // The store precedes the change of the fd, so that from now on no new empty directory is opened
    // through this fd.
    file->fd_kind.store(OpenFile::FdKind::origin, std::memory_order_seq_cst);
    put_over(own, fd, O_CLOEXEC);
    g_fds.unlock(fd, row);
  }
  sys::close(own);
  placeholder::fd_was_freed(own);
}

}  // namespace

int materialize_directory(int fd) {
  const BlockSignals block;
  const OpenFileRef file = acquire(fd);
  if (!file) return 0;
  const KeepErrno keep;
  long real = fd;
  if (!is_own(*file, fd)) {
    real = base::within_lifted_fd_limit([&] { return open_own(*file); });
    // Another thread has already put the directory over the fd.
    if (sys::failed(real) && is_own(*file, fd)) real = fd;
  }
  if (sys::failed(real)) return static_cast<int>(real);
  const int own = static_cast<int>(real);
  const auto position = tell(*file);
  // On ext4, an fd that seeks to the end before its first read lists nothing after a rewind. So
  // this function reads first.
  char first[512];
  if (position != 0) sys::raw(SYS_getdents64, own, sys::arg(first), sizeof first);
  sys::lseek(own, position, SEEK_SET);
  // The row need not be locked, because only one thread at a time uses a stream.
  g_fds.forget(fd);
  if (own != fd) put_over(own, fd, O_CLOEXEC);
  g_fds.set(fd, RowKind::directory, file.duplicate(), /*close_on_exec=*/true);
  if (own == fd) return 0;
  sys::close(own);
  placeholder::fd_was_freed(own);
  return 0;
}

void hold_all() {
  if (!process::owns_table()) return;
  const KeepErrno keep;
  for (int fd = 0; fd < g_fds.end(); ++fd) {
    if (g_fds.kind(fd) == RowKind::mount_stream) hold(fd);
  }
}

}  // namespace cube::shim::mount_stream
