#include "shim/path_calls.h"

#include <sys/vfs.h>

#include <algorithm>
#include <cstring>

#include "cache/base/aside.h"
#include "cache/base/log.h"
#include "cache/pack/pack_copy.h"
#include "shim/c_result.h"
#include "shim/fd_table.h"
#include "shim/listings.h"
#include "shim/materialize.h"
#include "shim/new_fds.h"
#include "shim/packed_directory.h"
#include "shim/packed_name.h"
#include "shim/path_of_fd.h"
#include "shim/real_libc.h"
#include "shim/spelling.h"

namespace cube::shim {
namespace {

namespace sys = base::sys;
using base::Counter;

// O_TMPFILE holds O_DIRECTORY's bit; __O_TMPFILE alone is the rest.
constexpr int k_needs_kernel = O_DIRECT | O_PATH | O_DIRECTORY | (O_TMPFILE & ~O_DIRECTORY) | O_ASYNC | O_NOATIME;
constexpr int k_may_change = O_CREAT | O_TRUNC;

bool opens_for_reading_only(int flags) { return (flags & O_ACCMODE) == O_RDONLY && (flags & k_may_change) == 0; }

// The flags that fcntl(F_GETFL) gives later.
int status_flags(int flags) {
  constexpr int k_large_file = 0100000;  // the kernel sets it on every open of a 64-bit process
  constexpr int k_kept = O_ACCMODE | O_APPEND | O_NONBLOCK | O_SYNC | O_NOFOLLOW;
  return (flags & k_kept) | k_large_file;
}

using path_filter::Care;

bool is_covered(int dir, const char* path, CoveredPath& covered, Care care = Care::quick) {
  return process::is_active() && process::owns_table() && path_filter::covers(dir, path, covered, care);
}

// The pack that a path lies in; null: none. Only a path that may be a directory's is looked at twice. In a child of vfork
// what is known of the working directory is the parent's.
const cache::PackMount* pack_of(int dir, const char* path, CoveredPath& covered) {
  const cache::PackMounts* const packs = process::packs();
  if (packs == nullptr || !process::is_active()) return nullptr;
  if (path_filter::spells_up(dir, path, covered)) {
    const cache::PackMount* const pack = packs->of(covered.key());
    cache::PackMount::Found found;
    if (pack != nullptr && pack->resolve(covered.key(), found) && path_filter::join(pack->prefix(), found.name(), covered))
      return pack;
  }
  const bool is_file = process::owns_table() && path_filter::covers(dir, path, covered);
  if (!is_file && !path_filter::covers_directory(dir, path, covered)) return nullptr;
  return packs->of(covered.key());
}

bool names_directory(std::string_view path) {
  return path.ends_with('/') || path.ends_with("/.") || path.ends_with("/..") || path == "." || path == "..";
}

bool stat_in_pack(int dir, const char* path, bool no_follow, cache::FileStat& stat) {
  CoveredPath covered;
  const cache::PackMount* const pack = pack_of(dir, path, covered);
  if (pack == nullptr) return false;
  // Behind a slash a link is what it leads to, and that is a directory.
  const bool wants_directory = names_directory(path);
  cache::PackMount::Found found;
  if (!pack->find(covered.key(), !no_follow || wants_directory, found)) return false;
  if (wants_directory && (found.entry.stat.mode & S_IFMT) != S_IFDIR) return false;
  stat = found.entry.stat;
  return true;
}

bool is_link(const cache::PackMount& pack, std::string_view key) {
  cache::PackMount::Found found;
  return pack.find(key, /*follows=*/false, found) && found.entry.kind == cache::RecordKind::link;
}

}  // namespace

bool stat_of_packed(int dir, const char* path, bool no_follow, cache::FileStat& stat) {
  return process::packs() != nullptr && stat_in_pack(dir, path, no_follow, stat);
}

bool is_below_packed(int dir, const char* path) {
  return process::packs() != nullptr && process::is_active() && packed_directory::is_below(dir, path);
}

namespace {

int error_in_packs(const cache::PackMounts& packs, int dir, const char* path, bool no_follow, CoveredPath& covered) {
  cache::PackMount::Found found;
  if (path_filter::spells_up(dir, path, covered)) {
    const cache::PackMount* const pack = packs.of(covered.key());
    const auto resolved = pack != nullptr ? pack->resolve(covered.key(), found) : base::Result<void>();
    if (!resolved) return resolved.error().value;
  }
  const cache::PackMount* const pack = pack_of(dir, path, covered);
  if (pack == nullptr) return ENOENT;
  const bool wants_directory = names_directory(path);
  const auto there = pack->find(covered.key(), !no_follow || wants_directory, found);
  if (!there) return there.error().value;
  return wants_directory && (found.entry.stat.mode & S_IFMT) != S_IFDIR ? ENOTDIR : ENOENT;
}

}  // namespace

int error_in_pack(int dir, const char* path, bool no_follow) {
  const cache::PackMounts* const packs = process::packs();
  if (packs == nullptr || !process::is_active()) return ENOENT;
  // The caller has one on its stack.
  return base::use_aside<CoveredPath>(
      [&](CoveredPath& covered) { return error_in_packs(*packs, dir, path, no_follow, covered); });
}

bool is_read_only(int dir, const char* path) {
  if (process::packs() == nullptr) return false;
  return base::use_aside<CoveredPath>([&](CoveredPath& covered) { return pack_of(dir, path, covered) != nullptr; });
}

bool is_read_only(int fd) {
  if (process::packs() == nullptr || !process::owns_table()) return false;
  // An fd for a path only is refused by the kernel.
  if (const OpenFileRef directory = packed_directory::acquire(fd)) return (directory->flags & O_PATH) == 0;
  const OpenFileRef file = g_fds.acquire(fd);
  return file && file->record->origin != cache::k_mounts;
}

namespace {

bool realpath_in_pack(const char* path, char (&to)[PATH_MAX], CoveredPath& covered) {
  const cache::PackMount* const pack = pack_of(AT_FDCWD, path, covered);
  cache::PackMount::Found found;
  if (pack == nullptr || !pack->find(covered.key(), /*follows=*/true, found)) return false;
  if (names_directory(path) && (found.entry.stat.mode & S_IFMT) != S_IFDIR) return false;
  if (!path_filter::join(pack->prefix(), found.name(), covered)) return false;
  std::memcpy(to, covered.c_str(), covered.key().size() + 1);
  return true;
}

}  // namespace

bool realpath_in_pack(const char* path, char (&to)[PATH_MAX]) {
  if (process::packs() == nullptr) return false;
  return base::use_aside<CoveredPath>([&](CoveredPath& covered) { return realpath_in_pack(path, to, covered); });
}

bool statfs_of_pack(int dir, const char* path, struct ::statfs& s) {
  if (process::packs() == nullptr) return false;
  const cache::PackMount* pack = nullptr;
  if (path == nullptr) {
    const OpenFileRef directory = packed_directory::acquire(dir);
    if (directory) pack = &directory->directory->mount();
  } else {
    CoveredPath covered;
    cache::PackMount::Found found;
    pack = pack_of(dir, path, covered);
    if (pack != nullptr && !pack->find(covered.key(), /*follows=*/true, found)) pack = nullptr;
  }
  if (pack == nullptr) return false;
  // A file system in user space, to those who take another way on some.
  constexpr int k_fuse_magic = 0x65735546;
  const cache::PackHeader& header = pack->reader().header();
  s = {};
  s.f_type = k_fuse_magic;
  s.f_bsize = s.f_frsize = cache::k_page;
  s.f_blocks = header.file_bytes / cache::k_page;
  s.f_files = header.entries;
  s.f_namelen = NAME_MAX;
  s.f_flags = ST_RDONLY;
  return true;
}

bool statvfs_of_pack(int dir, const char* path, struct ::statvfs& s) {
  struct ::statfs fs {};
  if (!statfs_of_pack(dir, path, fs)) return false;
  s = {};
  s.f_bsize = s.f_frsize = cache::k_page;
  s.f_blocks = fs.f_blocks;
  s.f_files = fs.f_files;
  s.f_namemax = NAME_MAX;
  s.f_flag = ST_RDONLY;
  return true;
}

void tell_of_working_directory(int dir, const char* path) {
  cache::FileStat stat;
  static constinit std::atomic<bool> told{false};
  if (!stat_of_packed(dir, path, /*no_follow=*/false, stat) || told.exchange(true, std::memory_order_relaxed)) return;
  const KeepErrno keep;
  base::log(base::LogLevel::warn, "{}: a directory that only a pack has cannot be the working directory", path);
}

bool copy_path_of_packed(int fd, char (&path)[PATH_MAX]) {
  const OpenFileRef directory = packed_directory::acquire(fd);
  if (!directory) return false;
  const std::string_view text = directory->directory->path();
  std::memcpy(path, text.data(), text.size() + 1);
  return true;
}

int error_of_new_name(int dir, const char* path) {
  cache::FileStat stat;
  if (!is_read_only(dir, path)) return 0;
  return stat_in_pack(dir, path, /*no_follow=*/true, stat) ? EEXIST : EROFS;
}

std::optional<long> readlink_in_pack(int dir, const char* path, char* to, std::size_t n) {
  CoveredPath covered;
  const cache::PackMount* const pack = pack_of(dir, path, covered);
  cache::PackMount::Found found;
  // Behind a slash it is what a link leads to, and that is none.
  const bool wants_directory = names_directory(path);
  if (pack == nullptr || !pack->find(covered.key(), wants_directory, found)) return std::nullopt;
  if (wants_directory && found.entry.kind != cache::RecordKind::directory) return std::nullopt;
  if (found.entry.kind != cache::RecordKind::link || n == 0) return -EINVAL;
  base::Aside target;
  if (!target) return -ENOMEM;
  const std::size_t size = found.entry.data_size;
  if (size >= PATH_MAX || !pack->reader().read(found.entry, target.bytes())) return -EIO;
  std::memcpy(to, target.data(), std::min(n, size));
  return static_cast<long>(std::min(n, size));
}

std::optional<long> access_in_pack(int dir, const char* path, int mode, bool no_follow) {
  cache::FileStat stat;
  if (process::packs() == nullptr || (mode & ~(R_OK | W_OK | X_OK)) != 0 || !stat_in_pack(dir, path, no_follow, stat))
    return std::nullopt;
  if ((mode & W_OK) != 0) return -EROFS;
  constexpr mode_t k_executable = S_IXUSR | S_IXGRP | S_IXOTH;
  const bool may_execute = (stat.mode & k_executable) != 0 || (stat.mode & S_IFMT) == S_IFDIR;
  return (mode & X_OK) != 0 && !may_execute ? -EACCES : 0;
}

void materialize_named(const char* path, int dir) {
  int fd = path_filter::named_fd(path);
  // A bare number that is served here, below what may be /proc/self/fd.
  if (const int bare = fd < 0 ? path_filter::bare_number(path) : -1; g_fds.kind(bare) == RowKind::served) {
    struct ::statfs fs {};
    constexpr decltype(fs.f_type) k_proc = 0x9fa0;
    const int below = dir == AT_FDCWD ? static_cast<int>(sys::open(".", O_PATH | O_CLOEXEC)) : dir;
    if (!sys::failed(sys::raw(SYS_fstatfs, below, sys::arg(&fs))) && fs.f_type == k_proc) fd = bare;
    if (below != dir) sys::close(below);
  }
  if (fd >= 0 && process::owns_table()) materialize(fd, "/proc/self/fd");
}

OpenPlan::OpenPlan(int dir, const char* path, int flags) : flags_(flags), program_path_(path) {
  if (!process::is_active()) return;
  materialize_named(path, dir);
  const bool may_write = !opens_for_reading_only(flags);
  if (process::packs() != nullptr && !process::owns_table()) {
    if (pack_of(dir, path, path_) != nullptr && !names_directory(path)) open_copy(may_write);
    return;
  }
  const cache::PackMount* const pack = pack_of(dir, path, path_);
  if (pack != nullptr && open_packed(*pack, path, may_write)) {
    if (result_ < 0) prefer_limit();
    return;
  }
  if (pack == nullptr && packed_directory::is_below(dir, path)) {
    answer(-ENOENT);
    return;
  }
  if (pack == nullptr && !is_covered(dir, path, path_, may_write ? Care::thorough : Care::quick)) {
    follow_ = may_write ? Follow::stranger : Follow::outside;
    if ((flags & O_DIRECTORY) != 0 && path_filter::may_lead_under_prefix(dir, path)) {
      follow_ = Follow::directory;
      // A program that lists a directory above the prefix has not listed the prefix.
      path_filter::is_prefix(dir, path, listed_);
    }
  } else if (may_write) {
    follow_ = Follow::writer;
    if (auto* const cache = process::cache(); cache != nullptr) cache->stats().count(Counter::bypassed_write);
  } else if ((flags & O_DIRECTORY) != 0) {
    follow_ = Follow::directory;
    listed_ = path_.key();
  } else if (pack != nullptr && names_directory(path)) {
    if (packed_directory::is_below(dir, path)) answer(-ENOENT);
  } else if ((flags & k_needs_kernel) != 0) {
    if (auto* const cache = process::cache(); cache != nullptr) cache->stats().count(Counter::bypassed_flags);
  } else if (auto* const cache = process::is_forking() ? nullptr : process::cache(); cache == nullptr) {
    open_copy(/*may_write=*/false);
  } else if (!refuse_link()) {
    constexpr auto k_serve = [](void* who, cache::Fill& fill, int fd) {
      return static_cast<OpenPlan*>(who)->serve_fill(fill, fd);
    };
    cache::OpenOutcome outcome = cache->open({path_.key(), path_.c_str(), flags, expect_new_fd, k_serve, this});
    const std::uint64_t fetched_bytes = outcome.was_fetched && outcome.pin ? outcome.pin->data_size : 0;
    const bool was_fetched = outcome.was_fetched;
    serve(std::move(outcome), flags);
    if (pack != nullptr && result_ == -EISDIR) open_directory(*pack);
    // A file that cannot be opened by its whole path may be by the program's own name, or fails with its own error.
    const bool is_kernels = pack == nullptr || (result_ == -ENOENT && !packed_directory::is_below(dir, path));
    if (result_ < 0 && result_ != -EINTR && path_.key() != path && is_kernels) answered_ = false;
    process::offer_sidecar(*cache);
    if (was_fetched) listings::note_miss(*cache, path_.key(), fetched_bytes);
    process::report_if_due(*cache);
  }
  if (!answered_) expect_new_fd();
  if (pack != nullptr && answered_ && result_ < 0) prefer_limit();
}

// The kernel looks for a number before it looks at the path. True: there is none, and that is the answer.
bool OpenPlan::prefer_limit() {
  expect_new_fd();
  const long fd = sys::open("/", O_PATH | O_CLOEXEC);
  if (fd == -EMFILE || fd == -ENFILE) answer(static_cast<int>(fd));
  if (sys::failed(fd)) return fd == -EMFILE || fd == -ENFILE;
  sys::close(static_cast<int>(fd));
  placeholder::number_was_freed(static_cast<int>(fd));
  return false;
}

void OpenPlan::answer(int result) {
  answered_ = true;
  result_ = result;
}

// Opens anything but a file to be read. False: it may be one.
bool OpenPlan::open_packed(const cache::PackMount& pack, const char* path, bool may_write) {
  if (may_write) {
    cache::PackMount::Found found;
    const bool is_directory = pack.find(path_.key(), /*follows=*/true, found) && found.entry.kind == cache::RecordKind::directory;
    const bool wants_new = (flags_ & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL);
    if (wants_new && pack.find(path_.key(), /*follows=*/false, found)) {
      answer(-EEXIST);
    } else {
      answer(is_directory && (flags_ & O_TMPFILE) != O_TMPFILE ? -EISDIR : -EROFS);
    }
    return true;
  }
  // Behind a slash a link is what it leads to.
  if (names_directory(path)) flags_ &= ~O_NOFOLLOW;
  const bool asks_for_one = (flags_ & (O_DIRECTORY | O_PATH)) != 0 || names_directory(path) || path_.key() == pack.prefix();
  if (asks_for_one) open_directory(pack);
  return answered_;
}

// If the pack has none, the kernel may, unless the pack has a file there.
void OpenPlan::open_directory(const cache::PackMount& pack) {
  int result = packed_directory::open(pack, path_.key(), flags_);
  if (result >= 0) listings::note_listing(path_.key());
  const bool may_be_file = (flags_ & (O_DIRECTORY | O_PATH)) == O_PATH && !names_directory(program_path_);
  if (result == -ENOTDIR && may_be_file) result = packed_name::open(pack, path_.key(), flags_);
  answered_ = false;
  if (result != -ENOENT) answer(result);
}

// The last component of a packed path; the kernel knows nothing of it.
bool OpenPlan::refuse_link() {
  if ((flags_ & O_NOFOLLOW) == 0 || !process::is_packed(path_.key())) return false;
  if (!is_link(*process::packs()->of(path_.key()), path_.key())) return false;
  answer(-ELOOP);
  return true;
}

// For a process that cannot use the cache or the table: the kernel could not open what only a pack has.
void OpenPlan::open_copy(bool may_write) {
  if (!process::is_packed(path_.key()) || (flags_ & k_needs_kernel) != 0 || refuse_link()) return;
  int result = -EROFS;
  if (!may_write) {
    expect_new_fd();
    auto copy = cache::open_copy_of_packed(*process::packs()->of(path_.key()), path_.key(), flags_);
    result = copy ? copy->release() : -copy.error().value;
    if (result >= 0 && process::owns_table()) g_fds.forget(result);
  }
  // The pack has no such file, or has a directory.
  if (result == -EISDIR && process::owns_table()) open_directory(*process::packs()->of(path_.key()));
  if (result != -ENOENT && result != -EISDIR) answer(result);
}

void OpenPlan::serve(cache::OpenOutcome&& outcome, int flags) {
  answered_ = true;
  if (!outcome.pin) {
    result_ = outcome.error != 0 ? -outcome.error : outcome.kernel_fd;
    if (result_ >= 0 && !outcome.is_filling) {
      g_fds.forget(result_);
      if (outcome.is_directory) g_fds.set_directory(result_);
    }
    return;
  }
  // The name itself is a link: the kernel says ELOOP.
  const bool is_packed = outcome.pin->origin != cache::k_mounts;
  if ((flags & O_NOFOLLOW) != 0 && !outcome.pin->is_physical() && !is_packed) {
    answered_ = false;
    return;
  }
  // A signal handler or another thread may have parked a number above the one that was used meanwhile, and is free again.
  if (outcome.used_fd) placeholder::number_was_freed(0);
  OpenFileRef file = open_files::make();
  const bool real = process::config().mode == base::Mode::real_files;
  if (real) expect_new_fd();
  const int fd = !file ? -ENFILE : real ? copy_to_memfd(*outcome.pin) : placeholder::acquire();
  if (fd < 0 || !g_fds.is_within(fd) || fd <= STDERR_FILENO) {
    // No number to be had, or one that the table does not reach: the kernel's own open says what is to be said. Libc's own
    // streams read 0 to 2 by calls that pass us by.
    if (fd >= 0) sys::close(fd);
    answered_ = false;
    // Without any number there is none for a copy either, whose bytes would be read for nothing.
    if (is_packed && (fd >= 0 || !prefer_limit())) open_copy(/*may_write=*/false);
    return;
  }
  g_fds.forget(fd);
  file->kind = OpenFile::Kind::served;
  file->record = &*outcome.pin;
  file->data = outcome.pin->data();
  // The first read comes soon, and finds the page's address translated and the first lines there.
  for (std::size_t line = 0; line < 512; line += 64) __builtin_prefetch(file->data + line);
  file->size = outcome.pin->data_size;
  file->flags = status_flags(flags);
  if (real) file->number.store(OpenFile::Number::copy, std::memory_order_relaxed);
  file->calls_saved.store(1, std::memory_order_relaxed);
  file->pin = std::move(outcome.pin);
  g_fds.set(fd, RowKind::served, std::move(file), (flags & O_CLOEXEC) != 0);
  result_ = fd;
}

// Reads of it are answered as its bytes come; the number is the origin's own, and the kernel knows its offset (materialize.h).
bool OpenPlan::serve_fill(cache::Fill& fill, int fd) {
  if (!g_fds.is_within(fd) || fd <= STDERR_FILENO) return false;
  OpenFileRef file = open_files::make();
  if (!file) return false;
  const bool close_on_exec = (flags_ & O_CLOEXEC) != 0;
  // An exec hands on what the row says.
  if (!close_on_exec) sys::fcntl(fd, F_SETFD, FD_CLOEXEC);
  g_fds.forget(fd);
  file->kind = OpenFile::Kind::served;
  file->number.store(OpenFile::Number::origin, std::memory_order_relaxed);
  file->record = &fill.record();
  file->data = file->record->data();
  file->size = file->record->data_size;
  file->flags = status_flags(flags_);
  file->fill = &fill;
  file->pin = fill.pin();
  g_fds.set(fd, RowKind::served, std::move(file), close_on_exec);
  return true;
}

int OpenPlan::result() const { return static_cast<int>(to_c(result_)); }

namespace {

// `key`: the covered path that it was opened by; empty: it has none.
void note_writer(int fd, std::string_view key, bool close_on_exec) {
  if (!process::may_have_cached()) return;
  const KeepErrno keep;
  const auto stat = cache::stat_fd(fd);
  if (!stat || !stat->is_regular()) return;
  auto* const cache = !key.empty() ? process::attached_cache() : process::cache_of_device(stat->device());
  if (cache == nullptr) return;
  OpenFileRef file = open_files::make();
  if (!file || !g_fds.is_within(fd)) return;
  file->kind = OpenFile::Kind::writer;
  file->written = *stat;
  cache->writing_begins(key, *stat);
  // Its other names: where it really lies.
  char real_path[PATH_MAX];
  cache->content_changed(path_of_fd(fd, real_path), nullptr);
  g_fds.set(fd, RowKind::writer, std::move(file), close_on_exec);
}

// In a child of vfork, whose memory is the parent's, and whose next program has the file.
void note_vforked_writer(int fd) {
  auto* const cache = process::attached_cache();
  if (cache == nullptr) return;
  const KeepErrno keep;
  const auto stat = cache::stat_fd(fd);
  if (!stat || !stat->is_regular() || !cache->knows_device(stat->device())) return;
  cache->child_writes({}, *stat);
  char real_path[PATH_MAX];
  cache->content_changed(path_of_fd(fd, real_path), nullptr);
}

}  // namespace

int OpenPlan::note(int fd) {
  if (fd < 0 || !process::is_active()) return fd;
  if (!process::owns_table()) {
    if (follow_ == Follow::stranger) note_vforked_writer(fd);
    return fd;
  }
  g_fds.forget(fd);
  const bool close_on_exec = (flags_ & O_CLOEXEC) != 0;
  if (follow_ == Follow::writer) note_writer(fd, path_.key(), close_on_exec);
  if (follow_ == Follow::stranger) note_writer(fd, {}, close_on_exec);
  if (follow_ == Follow::outside) spelling::opened_outside(fd, program_path_);
  if (follow_ == Follow::directory) {
    g_fds.set_directory(fd);
    listings::note_listing(listed_);
  }
  return fd;
}

namespace {

bool stat_of_cached(int dir, const char* path, bool no_follow, cache::FileStat& stat, bool with_mount) {
  CoveredPath covered;
  // A relative path may cost a getcwd: it is compared only where there is a cache to ask.
  const bool is_absolute = path_filter::is_absolute(path);
  if (is_absolute && !is_covered(dir, path, covered)) return false;
  if (!process::may_have_cache_to_look_at() || (!is_absolute && !is_covered(dir, path, covered))) return false;
  auto* const cache = process::cache_to_look_at();
  if (cache == nullptr) return false;
  const cache::Pin pin = cache->find({covered.key(), covered.c_str(), O_RDONLY});
  if (!pin || (no_follow && !pin->is_physical()) || (with_mount && !pin->has_one_view())) return false;
  stat = pin->stat;
  cache->stats().count(Counter::stat_hits);
  return true;
}

}  // namespace

bool stat_from_record(int dir, const char* path, bool no_follow, cache::FileStat& stat, bool with_mount) {
  if (!process::is_active()) return false;
  // A pack's own prefix is covered by none.
  if (path_filter::passes_by(path)) return process::packs() != nullptr && stat_in_pack(dir, path, no_follow, stat);
  materialize_named(path, dir);
  if (!real::stat_is_anothers() && stat_of_cached(dir, path, no_follow, stat, with_mount)) return true;
  return process::packs() != nullptr && stat_in_pack(dir, path, no_follow, stat);
}

bool access_from_record(int dir, const char* path, int mode) {
  // That it could be opened for reading is known; nothing else is. access(2) asks for the real ids.
  cache::FileStat stat;
  if ((mode & ~R_OK) != 0 || !stat_from_record(dir, path, false, stat)) return false;
  return sys::raw(SYS_getuid) == sys::raw(SYS_geteuid) && sys::raw(SYS_getgid) == sys::raw(SYS_getegid);
}

NameChange::NameChange(int dir, const char* path, bool follows_links) : dir_(dir) {
  if (!process::is_active()) return;
  materialize_named(path, dir);
  // The file of the fd itself.
  by_fd_ = dir >= 0 && (path == nullptr || *path == '\0');
  if (by_fd_) materialize(dir, "fchownat");
  auto* const cache = process::existing_cache();
  if (cache == nullptr || cache->is_empty()) return;
  covered_ = process::owns_table() && path_filter::covers_changed(dir, path, path_);
  // By another name it may be what is covered, and a link under a covered name is not what it leads to.
  if (follows_links) followed_ = path;
  if (!covered_) {
    if (!follows_links && path_filter::is_prefix_or_above(dir, path, prefix_)) materialize_below(prefix_);
    return;
  }
  // While the name still leads to the file.
  materialize_below(path_.key());
  if (follows_links) return;
  const KeepErrno keep;
  if (const auto stat = cache::stat_path(dir, path, AT_SYMLINK_NOFOLLOW)) before_ = *stat;
  if (before_) materialize_other_names(*before_);
}

void NameChange::commit(const Passage& before) {
  path_filter::forget_found_directories();
  auto* const cache = process::attached_cache();
  if (cache == nullptr) return;
  const KeepErrno keep;
  if (by_fd_) note_changed(dir_, before);
  if (!prefix_.empty()) cache->tree_changed(prefix_);
  if (followed_ != nullptr) {
    const long fd = sys::openat(dir_, followed_, O_PATH | O_CLOEXEC);
    if (!sys::failed(fd)) note_changed(static_cast<int>(fd), before);
    sys::close(static_cast<int>(fd));
  }
  if (!covered_) return;
  cache->content_changed(path_.key(), before_ ? &*before_ : nullptr);
  const auto type = before_ ? before_->mode & S_IFMT : 0U;
  if (type == S_IFDIR || type == S_IFLNK) cache->tree_changed(path_.key());
}

Passage passage_of(int dir, const char* path) {
  if (!process::is_active() || !process::owns_table()) return {};
  auto* const cache = process::existing_cache();
  if (cache == nullptr || cache->is_empty()) return {};
  const KeepErrno keep;
  const auto stat = cache::stat_path(dir, path, AT_EMPTY_PATH | AT_STATX_DONT_SYNC);
  if (!stat || (stat->mode & S_IFMT) != S_IFDIR) return {};
  return {.is_known = true, .mode = stat->mode, .user = stat->user, .group = stat->group};
}

Passage passage_by_attribute(int dir, const char* path, const char* name) {
  const bool is_list = reinterpret_cast<std::uintptr_t>(name) >= 4096 && std::strncmp(name, "system.", 7) == 0;
  Passage passage = is_list ? passage_of(dir, path) : Passage();
  passage.is_lost = true;
  return passage;
}

namespace {

// The owner is of no matter to root, whom nobody refuses: who unpacks a tree gives away one directory after the other.
bool has_lost(const Passage& before, const cache::FileStat& after) {
  constexpr std::uint32_t k_search = S_IXUSR | S_IXGRP | S_IXOTH;
  const bool is_given_away = before.user != after.user || before.group != after.group;
  return before.is_lost || (before.mode & ~after.mode & k_search) != 0 || (is_given_away && sys::raw(SYS_geteuid) != 0);
}

}  // namespace

void note_changed(int fd, const Passage& before) {
  if (!process::is_active() || !process::owns_table()) return;
  // A forked child that has opened nothing yet changes files too.
  auto* const cache = process::existing_cache();
  if (cache == nullptr || cache->is_empty()) return;
  const KeepErrno keep;
  const auto stat = cache::stat_fd(fd);
  if (!stat) return;
  char path[PATH_MAX];
  const bool is_known = cache->knows_device(stat->device());
  if (stat->is_regular() && is_known) cache->content_changed(path_of_fd(fd, path), &*stat);
  if (!before.is_known || (stat->mode & S_IFMT) != S_IFDIR || !has_lost(before, *stat)) return;
  // Mounts that prefixes lie on may be below a directory of another device.
  const std::string_view directory = path_of_fd(fd, path);
  std::string_view prefix;
  if (directory.size() < sizeof path) path[directory.size()] = '\0';
  if (is_known || path_filter::is_prefix_or_above(AT_FDCWD, path, prefix)) cache->tree_changed(directory);
}

int note_foreign_fd(int fd) {
  if (fd < 0 || !process::is_active() || !process::owns_table()) return fd;
  g_fds.forget(fd);
  const KeepErrno keep;
  const long flags = sys::fcntl(fd, F_GETFL, 0);
  if (sys::failed(flags) || (flags & O_PATH) != 0 || (flags & O_ACCMODE) == O_RDONLY) return fd;
  note_writer(fd, {}, /*close_on_exec=*/(sys::fcntl(fd, F_GETFD, 0) & FD_CLOEXEC) != 0);
  return fd;
}

void note_foreign_writer(int dir, const char* path) {
  if (!process::is_active() || !process::owns_table()) return;
  const KeepErrno keep;
  CoveredPath covered;
  const bool is_covered_here = is_covered(dir, path, covered, Care::thorough);
  if (!is_covered_here && !process::may_have_cached()) return;
  const long opened = sys::openat(dir, path, O_PATH | O_CLOEXEC);
  if (sys::failed(opened)) return;
  const base::UniqueFd fd(static_cast<int>(opened));
  const auto stat = cache::stat_fd(fd.get());
  if (!stat || !stat->is_regular()) return;
  auto* const cache = is_covered_here ? process::cache() : process::cache_of_device(stat->device());
  if (cache == nullptr) return;
  cache->child_writes(is_covered_here ? covered.key() : std::string_view(), *stat);
  char real_path[PATH_MAX];
  cache->content_changed(path_of_fd(fd.get(), real_path), nullptr);
}

}  // namespace cube::shim
