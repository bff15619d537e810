#include "shim/calls/open/open_plan.h"

#include "cache/base/clock.h"
#include "shim/calls/directory/listing_prefetch.h"
#include "shim/calls/directory/unmounted_directory.h"
#include "shim/calls/large_reads.h"
#include "shim/calls/loaded_calls.h"
#include "shim/calls/name/unmounted_paths.h"
#include "shim/calls/new_fds.h"
#include "shim/calls/open/path_only_fd.h"
#include "shim/fd/fd_table.h"
#include "shim/fd/kernel_file.h"
#include "shim/fd/materialize.h"
#include "shim/fd/noted_opens.h"
#include "shim/path/fd_path.h"
#include "shim/process/attachment.h"
#include "shim/threads/own_threads.h"

namespace cube::shim {
namespace {

namespace sys = base::sys;
using base::Counter;

// O_TMPFILE includes the bit of O_DIRECTORY; __O_TMPFILE does not.
constexpr int k_needs_kernel =
    O_DIRECT | O_PATH | O_DIRECTORY | (O_TMPFILE & ~O_DIRECTORY) | O_ASYNC | O_NOATIME;
constexpr int k_may_change = O_CREAT | O_TRUNC;

// Returns the flags that fcntl(F_GETFL) must report.
int status_flags(int flags) {
  // The kernel sets O_LARGEFILE on every open of a 64-bit process, where libc's O_LARGEFILE is 0.
#if defined(__aarch64__)
  constexpr int k_large_file = 0400000;
#else
  constexpr int k_large_file = 0100000;
#endif
  constexpr int k_kept =
      O_ACCMODE | O_APPEND | O_NONBLOCK | O_SYNC | O_NOFOLLOW | O_DIRECT | O_NOATIME;
  return (flags & k_kept) | k_large_file;
}

}  // namespace

bool OpenPlan::may_write() const {
  return (flags_ & O_ACCMODE) != O_RDONLY || (flags_ & k_may_change) != 0;
}

OpenPlan::OpenPlan(int dir, const char* path, int flags)
    : dir_(dir), program_path_(path), flags_(flags) {
  if ((flags & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY))) != 0) begun_ns_ = base::boot_ns();
  if (!process::is_active()) {
    if (process::tells() && may_write()) follow_ = Follow::stranger;
    return;
  }
  if (may_write() && path_filter::is_unmapped(path)) return;
  materialize_named(path, dir);
  metadata_ = unmounted_paths::of(dir, path, path_);
  plan(classify());
  if (!answered_) expect_new_fd();
  if (metadata_ != nullptr && answered_ && result_ < 0) prefer_limit();
}

// For our paths, O_DIRECT and O_NOATIME do not need the kernel, because reads by this library use
// no page cache and change no access time.
bool OpenPlan::needs_kernel() const {
  const int flags = metadata_ != nullptr ? flags_ & ~(O_DIRECT | O_NOATIME) : flags_;
  return (flags & k_needs_kernel) != 0;
}

OpenPlan::Kind OpenPlan::classify() {
  const bool for_change = may_write();
  if (metadata_ != nullptr) {
    if (!process::owns_table()) return Kind::name_without_table;
    const bool asks_for_path = (flags_ & (O_DIRECTORY | O_PATH)) != 0 ||
                               unmounted_paths::asks_for_directory(program_path_);
    if (for_change || asks_for_path || path_.key() == metadata_->prefix()) return Kind::name;
  } else {
    if (unmounted_directory::is_below(dir_, program_path_)) return Kind::below_served;
    if (!path_filter::covers_served(
            dir_, program_path_, path_,
            for_change ? path_filter::Care::thorough : path_filter::Care::quick))
      return Kind::outside;
    if (for_change) return Kind::change;
    if ((flags_ & O_DIRECTORY) != 0) return Kind::directory;
  }
  return needs_kernel() ? Kind::kernel_flags : Kind::file;
}

void OpenPlan::plan(Kind kind) {
  switch (kind) {
    case Kind::file: return plan_file();
    case Kind::outside: return plan_outside();
    case Kind::change: return plan_change();
    case Kind::directory: return plan_directory();
    case Kind::kernel_flags: return plan_kernel_flags();
    case Kind::name: return plan_name();
    case Kind::name_without_table: return plan_name_without_table();
    case Kind::below_served: return answer(-ENOENT);
  }
}

void OpenPlan::plan_outside() {
  follow_ = may_write() ? Follow::stranger : Follow::outside;
  if (may_write()) return;
  const bool for_directory = (flags_ & O_DIRECTORY) != 0;
  if (!(for_directory ? path_filter::may_lead_under_prefix(dir_, program_path_)
                      : path_filter::may_name_prefix_or_above(dir_, program_path_)))
    return;
  follow_ = Follow::directory;
  // A directory above the prefix does not count as a listing of the prefix.
  if (for_directory) path_filter::is_prefix(dir_, program_path_, listed_);
}

void OpenPlan::plan_change() {
  follow_ = Follow::writer;
  count_unserved(Counter::bypassed_write);
  // This must happen before the open. Afterwards, a truncated file looks like a new file that has
  // reused the inode.
  cache::FileCache* const cache = attachment::attached_cache();
  if ((flags_ & k_may_change) == 0 || cache == nullptr) return;
  const cache::RamTier& ram = cache->parts().ram;
  // Does not ask the server each time that a program appends to a file whose record is stale. An
  // exclusive open shows by itself that the file is new.
  const bool asks_if_stale = (flags_ & (O_APPEND | O_EXCL)) == 0;
  const bool is_known = ram.has_any(path_.key(), base::hash_path(path_.key())) ||
                        (asks_if_stale && ram.has_named(path_.key()));
  if (!is_known) return;
  const auto now = cache::stat_path(AT_FDCWD, path_.c_str(), cache::k_ask_server);
  const int error = now ? 0 : now.error().value;
  was_absent_ = error == ENOENT;
  if (error != 0 && error != ENOENT && error != ENOTDIR && error != ESTALE) return;
  cache->changes().doubt_identity(path_.key(), now ? &*now : nullptr);
}

void OpenPlan::plan_directory() {
  follow_ = Follow::directory;
  listed_ = path_.key();
}

// The kernel opens the file. If the file is large, reads with O_DIRECT are answered from blocks.
void OpenPlan::plan_kernel_flags() {
  const bool is_direct = (flags_ & k_needs_kernel) == O_DIRECT;
  if (is_direct && !process::is_forking() && attachment::cache() != nullptr) {
    follow_ = Follow::direct;
  } else {
    count_unserved(Counter::bypassed_flags);
    // The path may name a directory.
    if ((flags_ & O_PATH) != 0) follow_ = Follow::directory;
  }
}

// Looks up the path in the pack or bucket first, and asks the kernel only if the path is not there.
void OpenPlan::plan_name() {
  if (may_write()) return answer(-error_of_change());
  const bool asks_for_directory = unmounted_paths::asks_for_directory(program_path_);
  // If the path ends in a slash, it names the target of a final link.
  if (asks_for_directory) flags_ &= ~O_NOFOLLOW;
  open_directory();
  if (answered_) return;
  if ((flags_ & O_DIRECTORY) != 0) return plan_directory();
  if (asks_for_directory) {
    if (unmounted_directory::is_below(dir_, program_path_)) answer(-ENOENT);
    return;
  }
  if (needs_kernel()) return count_unserved(Counter::bypassed_flags);
  plan_file();
}

// Opens a copy, because the kernel cannot open one of our paths.
void OpenPlan::plan_name_without_table() {
  if (!unmounted_paths::asks_for_directory(program_path_)) open_copy();
}

void OpenPlan::plan_file() {
  auto* const cache = process::is_forking() ? nullptr : attachment::cache();
  if (cache == nullptr) return open_copy();
  if (!refuse_link()) open_cached(*cache);
}

OpenPlan::Opened OpenPlan::open_and_serve(cache::FileCache& cache) {
  constexpr auto k_serve = [](void* who, cache::PartialFill& fill, int fd) {
    return static_cast<OpenPlan*>(who)->serve_fill(fill, fd);
  };
  cache::OpenRequest request = {path_.key(), path_.c_str(), flags_, expect_new_fd, k_serve, this};
  // In mode real, a read that bypasses this library would move only the kernel's offset.
  if (process::serves_copies()) request.serve_fill = nullptr;
  cache::OpenOutcome outcome = cache.open(request);
  const std::uint64_t fetched_bytes =
      outcome.was_fetched && outcome.pin ? outcome.pin->data_size : 0;
  const Opened opened{outcome.was_fetched, outcome.has_waited_for_stat,
                      outcome.error != 0 && !outcome.is_known_absent, fetched_bytes};
  serve(std::move(outcome));
  return opened;
}

void OpenPlan::open_cached(cache::FileCache& cache) {
  const auto [was_fetched, has_waited_for_stat, is_kernels_error, fetched_bytes] =
      open_and_serve(cache);
  if (is_kernels_error && result_ == -ENOENT && cache.metadata().note_miss(path_.key()))
    own_threads::gather_metadata_near(cache, path_.key());
  // Gathers the stats of the directory for later opens. Skips a large directory, because the
  // program may open only a few of its files.
  if (has_waited_for_stat && cache.metadata().note_look(path_.key())) {
    const std::string_view key = path_.key();
    own_threads::wish_for(cache, own_threads::Wish::gather, key.substr(0, key.rfind('/')));
  }
  if (is_kernels_error) learn(-result_);
  if (metadata_ != nullptr && result_ == -EISDIR) open_directory();
  // The program's own path may work, or give the right error, even if the absolute path does not.
  const bool is_kernels =
      metadata_ == nullptr ||
      (result_ == -ENOENT && !unmounted_directory::is_below(dir_, program_path_));
  if (result_ < 0 && result_ != -EINTR && path_.key() != program_path_ && is_kernels)
    answered_ = false;
  if (answered_ && result_ >= 0) noted_opens::note(path_.key());
  own_threads::offer(cache);
  if (was_fetched) {
    listing_prefetch::note_miss(cache, path_.key(), fetched_bytes);
    loaded_calls::look_if_due();
  }
  process::report_if_due(cache);
}

// If no fd is free, answers with the kernel's error and returns true. The kernel, too, looks for a
// free fd before it examines the path.
bool OpenPlan::prefer_limit() {
  expect_new_fd();
  const long fd = sys::open("/", O_PATH | O_CLOEXEC);
  if (fd == -EMFILE || fd == -ENFILE) answer(static_cast<int>(fd));
  if (sys::failed(fd)) return fd == -EMFILE || fd == -ENFILE;
  sys::close(static_cast<int>(fd));
  placeholder::fd_was_freed(static_cast<int>(fd));
  return false;
}

void OpenPlan::count_unserved(Counter reason) const {
  if (auto* const cache = attachment::cache(); cache != nullptr)
    cache->count_unserved(reason, path_.key());
}

void OpenPlan::answer(int result) {
  answered_ = true;
  result_ = result;
}

int OpenPlan::error_of_change() const {
  const bool wants_new = (flags_ & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL);
  if (wants_new && metadata_->stat(path_.key(), cache::Metadata::Follow::nothing)) return EEXIST;
  const auto found = metadata_->stat(path_.key(), cache::Metadata::Follow::last);
  const bool is_directory = found && (found->mode & S_IFMT) == S_IFDIR;
  return is_directory && (flags_ & O_TMPFILE) != O_TMPFILE ? EISDIR : EROFS;
}

// Leaves the open to the kernel if the path does not exist among our paths.
void OpenPlan::open_directory() {
  int result = unmounted_directory::open(*metadata_, path_.key(), flags_);
  if (result >= 0) listing_prefetch::note_listing(path_.key());
  const bool may_be_file = (flags_ & (O_DIRECTORY | O_PATH)) == O_PATH &&
                           !unmounted_paths::asks_for_directory(program_path_);
  if (result == -ENOTDIR && may_be_file)
    result = path_only_fd::open(*metadata_, path_.key(), flags_);
  answered_ = false;
  if (result != -ENOENT) answer(result);
}

// Refuses one of our paths whose last component is a link (ELOOP). The kernel does not know our
// paths and so cannot refuse them.
bool OpenPlan::refuse_link() {
  if ((flags_ & O_NOFOLLOW) == 0 || metadata_ == nullptr) return false;
  const auto found = metadata_->stat(path_.key(), cache::Metadata::Follow::nothing);
  if (!found || (found->mode & S_IFMT) != S_IFLNK) return false;
  answer(-ELOOP);
  return true;
}

// Opens one of our paths for a process that cannot use the cache or the fd table.
void OpenPlan::open_copy() {
  if (metadata_ == nullptr || needs_kernel() || refuse_link()) return;
  int result = -EROFS;
  if (!may_write()) {
    expect_new_fd();
    auto copy = metadata_->open_copy(path_.key(), flags_);
    result = copy ? copy->release() : -copy.error().value;
    if (result >= 0 && process::owns_table()) g_fds.forget(result);
  }
  // Either our paths have no such file, or the path names a directory.
  if (result == -EISDIR && process::owns_table()) open_directory();
  if (result != -ENOENT && result != -EISDIR) answer(result);
}

void OpenPlan::serve(cache::OpenOutcome&& outcome) {
  answered_ = true;
  if (outcome.object != nullptr) return serve_object(*outcome.object);
  if (!outcome.pin) {
    result_ = outcome.error != 0 ? -outcome.error : outcome.kernel_fd;
    if (result_ >= 0 && !outcome.is_filling) {
      g_fds.forget(result_);
      if (outcome.is_directory) g_fds.set_directory(result_);
      if (outcome.unless_large) serve_in_blocks(result_, *outcome.unless_large);
    }
    return;
  }
  // The last component is a link, so the kernel must return ELOOP.
  const bool is_in_kernel = outcome.pin->is_in_kernel();
  if ((flags_ & O_NOFOLLOW) != 0 && !outcome.pin->is_physical() && is_in_kernel) {
    answered_ = false;
    return;
  }
  // The cache has used an fd for this open and has freed it again. Meanwhile, a signal handler or
  // another thread may have parked a higher fd as a placeholder.
  if (outcome.freed_fd >= 0) placeholder::note_freed(outcome.freed_fd);
  OpenFileRef file = open_files::make();
  bool real = process::serves_copies();
  if (real) [[unlikely]] {
    loaded_calls::look_if_doubted();
    real = process::serves_copies();
    if (real) expect_new_fd();
  }
  const int fd = !file  ? -ENFILE
                 : real ? kernel_file::copy_bytes_of(*outcome.pin)
                        : placeholder::acquire();
  if (fd < 0 || !g_fds.is_within(fd) || fd <= STDERR_FILENO) {
    // Leaves the open to the kernel in three cases. Without an fd, the kernel returns the right
    // error. The table has no row for a high fd. libc's streams use fds 0 to 2 by internal calls
    // that bypass this library.
    if (fd >= 0) sys::close(fd);
    answered_ = false;
    // A copy needs an fd, too. If no fd is free, do not read the bytes for a copy.
    if (!is_in_kernel && (fd >= 0 || !prefer_limit())) open_copy();
    return;
  }
  g_fds.forget(fd);
  file->kind = OpenFile::Kind::served;
  file->record = &*outcome.pin;
  file->data = outcome.pin->data();
  // The first read will come soon. This loop loads the page's translation into the TLB, and the
  // page's first lines into the processor's cache.
  for (std::size_t line = 0; line < 512; line += 64) __builtin_prefetch(file->data + line);
  file->size = outcome.pin->data_size;
  file->flags = status_flags(flags_);
  if (real) {
    file->fd_kind.store(OpenFile::FdKind::copy, std::memory_order_relaxed);
    // The kernel answers the reads, so they cannot be counted.
    if (auto* const cache = attachment::attached_cache(); cache != nullptr)
      cache->stats().count(Counter::bytes_served, file->size);
  }
  file->calls_saved.store(1, std::memory_order_relaxed);
  file->pin = std::move(outcome.pin);
  g_fds.set(fd, RowKind::served, std::move(file), (flags_ & O_CLOEXEC) != 0);
  result_ = fd;
}

// Serves an object whose reads are answered from blocks.
void OpenPlan::serve_object(cache::LargeFile& object) {
  OpenFileRef file = open_files::make();
  const int fd = file ? placeholder::acquire() : -ENFILE;
  if (fd < 0 || !g_fds.is_within(fd) || fd <= STDERR_FILENO) {
    if (fd >= 0) sys::close(fd);
    object.end();
    answered_ = false;
    if (fd >= 0 || !prefer_limit()) open_copy();
    return;
  }
  g_fds.forget(fd);
  file->fd_kind.store(OpenFile::FdKind::blocks, std::memory_order_relaxed);
  file->record = &object.record();
  file->data = nullptr;
  file->size = object.size();
  file->flags = status_flags(flags_);
  file->large = &object;
  g_fds.set(fd, RowKind::served, std::move(file), (flags_ & O_CLOEXEC) != 0);
  result_ = fd;
}

// Serves a file whose reads are answered as its bytes arrive. The fd refers to the origin's own
// file, and the kernel knows its offset (materialize.h).
bool OpenPlan::serve_fill(cache::PartialFill& fill, int fd) {
  if (!g_fds.is_within(fd) || fd <= STDERR_FILENO) return false;
  OpenFileRef file = open_files::make();
  if (!file) return false;
  const bool close_on_exec = (flags_ & O_CLOEXEC) != 0;
  // The fd is always close-on-exec in the kernel. The row holds the program's flag.
  if (!close_on_exec) sys::fcntl(fd, F_SETFD, FD_CLOEXEC);
  g_fds.forget(fd);
  file->kind = OpenFile::Kind::served;
  file->fd_kind.store(OpenFile::FdKind::origin, std::memory_order_relaxed);
  file->record = &fill.record();
  file->data = file->record->data();
  file->size = file->record->data_size;
  file->flags = status_flags(flags_);
  file->fill = &fill;
  file->pin = fill.pin();
  g_fds.set(fd, RowKind::served, std::move(file), close_on_exec);
  return true;
}

// The kernel has opened `fd`. If its file is large, serves its reads from blocks; otherwise counts
// the open under `otherwise`.
void OpenPlan::serve_in_blocks(int fd, Counter otherwise) {
  const KeepErrno keep;
  const bool is_large = metadata_ == nullptr &&
                        large_reads::serve(fd, path_.key(), (flags_ & O_CLOEXEC) != 0, otherwise);
  if (!is_large) return count_unserved(otherwise);
  auto* const cache = attachment::cache();
  if (cache == nullptr) return;
  cache->stats().count(Counter::large_opens);
  // For every other file, the fetch has already counted the open.
  if (otherwise == Counter::bypassed_flags) cache->stats().count(Counter::origin_opens);
}

}  // namespace cube::shim
