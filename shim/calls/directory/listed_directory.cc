#include "shim/calls/directory/listed_directory.h"

#include <cerrno>

#include "cache/base/process/aside.h"
#include "cache/base/process/lifted_fd_limit.h"
#include "shim/calls/directory/empty_directory.h"
#include "shim/calls/directory/listings.h"
#include "shim/calls/directory/moved_directory.h"
#include "shim/calls/new_fds.h"
#include "shim/fd/materialize.h"
#include "shim/path/path_filter.h"
#include "shim/process/attachment.h"
#include "shim/process/c_result.h"
#include "shim/threads/background.h"

namespace cube::shim::listed_directory {
namespace {

namespace sys = base::sys;

constexpr int k_flags = O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC;

int serve(cache::Listing* listing) {
  expect_new_fd();
  OpenFileRef file = open_files::make();
  const long fd = file ? empty_directory::open(k_flags) : -ENFILE;
  if (fd < 0 || !g_fds.is_within(static_cast<int>(fd)) || fd <= STDERR_FILENO) {
    listing->release();
    if (fd >= 0) sys::close(static_cast<int>(fd));
    return k_kernels;
  }
  const int new_fd = static_cast<int>(fd);
  g_fds.forget(new_fd);
  file->kind = OpenFile::Kind::directory;
  file->directory = listing;
  file->size = listing->end();
  file->flags = k_flags;
  g_fds.set(new_fd, RowKind::listed_directory, std::move(file), /*close_on_exec=*/true);
  return new_fd;
}

int open_covered(int dir, const char* path, CoveredPath& covered, bool& is_kernels) {
  if (!path_filter::covers_directory(dir, path, covered)) return k_kernels;
  auto* const cache = process::is_forking() ? nullptr : attachment::cache();
  if (cache == nullptr || !cache->metadata().is_on()) return k_kernels;
  // Programs that search a tree ask of each entry whether it is a directory.
  if (cache->metadata().is_file(covered.key())) return -ENOTDIR;
  expect_new_fd();
  cache::MountMetadata::Listed listed = cache->metadata().list(covered.key(), covered.c_str());
  // Another thread, or a signal handler, may have parked an fd meanwhile.
  placeholder::fd_was_freed(0);
  if (listed.listing == nullptr && !listed.fd) return k_kernels;
  const int fd = listed.listing != nullptr ? serve(listed.listing) : listed.fd.release();
  is_kernels = listed.listing == nullptr;
  if (fd < 0) return fd;
  if (is_kernels) {
    g_fds.forget(fd);
    g_fds.set_directory(fd);
  }
  if (listed.is_long) background::wish_for(*cache, background::Wish::list, covered.key());
  // The program goes from one directory to the next and has waited for this one.
  if (listed.was_worth_listing_ahead)
    background::wish_for(*cache, background::Wish::next, covered.key());
  listings::note_listing(covered.key());
  background::offer(*cache);
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
  return base::use_aside<CoveredPath>(
      [&](CoveredPath& covered) { return open_covered(dir, path, covered, is_kernels); });
}

struct ::dirent* next_entry(OpenFile& file) {
  std::uint64_t at = file.offset.load(std::memory_order_acquire);
  struct ::dirent* entry = nullptr;
  do {
    if (at >= file.size) return nullptr;
    entry = file.directory->at(at);
  } while (!file.offset.compare_exchange_weak(at, at + entry->d_reclen, std::memory_order_acq_rel));
  return entry;
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

// Opens the origin's own directory, by the path with which the stream was opened, or where others
// have moved it. Returns -errno on failure; -ENOENT: it cannot be found, or is gone.
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
  return open_moved_directory(listing, k_flags);
}

void put_under(int own, int fd) {
  if (sys::dup3(own, fd, O_CLOEXEC) != -EBADF) return;
  // The program has lowered its limit since.
  const base::LiftedFdLimit lifted;
  sys::dup3(own, fd, O_CLOEXEC);
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
  if (g_fds.lock_if(fd, file.get(), row, RowKind::listed_directory)) {
    // Stored first: from now on, no empty directory is opened through this fd.
    file->fd_kind.store(OpenFile::FdKind::origin, std::memory_order_seq_cst);
    put_under(own, fd);
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
    // Another thread has put the directory there meanwhile.
    if (sys::failed(real) && is_own(*file, fd)) real = fd;
  }
  if (sys::failed(real)) return static_cast<int>(real);
  const int own = static_cast<int>(real);
  sys::lseek(own, tell(*file), SEEK_SET);
  // The row need not be locked: a stream belongs to the thread that reads it.
  g_fds.forget(fd);
  if (own != fd) put_under(own, fd);
  g_fds.set_directory(fd);
  if (own == fd) return 0;
  sys::close(own);
  placeholder::fd_was_freed(own);
  return 0;
}

void hold_all() {
  if (!process::owns_table()) return;
  const KeepErrno keep;
  for (int fd = 0; fd < g_fds.end(); ++fd) {
    if (g_fds.kind(fd) == RowKind::listed_directory) hold(fd);
  }
}

}  // namespace cube::shim::listed_directory
