#include "cache/region/region.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "cache/base/clock.h"
#include "cache/base/error_text.h"
#include "cache/base/log.h"
#include "cache/base/memory/memory_limits.h"
#include "cache/base/memory/off_stack.h"
#include "cache/base/process/proc_fd_name.h"
#include "cache/base/process/rlimit_fsize.h"
#include "cache/record/record.h"
#include "cache/region/life/robust_lock.h"

namespace cube::cache {
namespace {

namespace sys = base::sys;

// With these flags, the open does not block even if the region's name belongs to a FIFO or to a
// file with a lease.
constexpr int k_open_name = O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;

// After the region has given memory back, no process leases a segment for this time. Other programs
// allocate and free memory batch by batch, so they will soon need the memory again.
constexpr std::uint64_t k_rest_ns = 5'000'000'000;

// Whether robust mutexes work. Without them, no process would learn that the holder of a mutex has
// died. glibc asks the kernel for them once, and a sandbox may have refused.
bool has_robust_mutexes() {
  void* head = nullptr;
  std::size_t bytes = 0;
  return sys::failed(sys::raw(SYS_get_robust_list, 0, sys::arg(&head), sys::arg(&bytes))) ||
         head != nullptr;
}

// Returns the size of the new region. 0: no region can be created, for the reason `why`.
std::uint64_t wanted_bytes(const RegionOptions& options, std::string& why) {
  const auto room = base::shared_room(options.directory.c_str());
  if (!room) {
    why = fmt::format("CUBESHIM_RAM_DIR={}: {}; it takes a directory on a tmpfs", options.directory,
                      base::text_of_error(room.error().value));
    return 0;
  }
  std::uint64_t wanted = options.size;
  if (options.is_percent) {
    const std::uint64_t memory = base::available_memory();
    wanted = memory == UINT64_MAX ? 1ULL << 30 : memory / 100 * options.size;
  }
  const std::uint64_t most = room->most_for_region(options.is_percent);
  if (wanted > most && most >= base::k_least_region && !options.is_percent) {
    base::log(base::LogLevel::warn, "CUBESHIM_RAM={} is more than {} has room for: using {} MiB",
              options.size, options.directory, most >> 20);
  }
  wanted = std::min(wanted, most);
  if (wanted >= base::file_size_limit()) {
    why = fmt::format(
        "no room for a cache: the limit of file sizes (ulimit -f) is below the {} MiB of "
        "CUBESHIM_RAM",
        wanted >> 20);
    return 0;
  }
  if (wanted >= base::k_least_region) return wanted;
  why = fmt::format(
      "no room for a cache: {} has {} MiB free and {} of these stay free for others, so "
      "CUBESHIM_RAM may have {} MiB, at least "
      "{} "
      "are needed",
      options.directory, room->free >> 20, std::min(room->free, room->left_to_others()) >> 20,
      wanted >> 20, base::k_least_region >> 20);
  return 0;
}

// Makes one huge page from a hole in the file, or from existing pages. Works even if shmem_enabled
// is "never", and costs less than 512 small pages and their faults (doc/benchmarks/calls.md). The
// kernel requires that one page exists, so make_huge_page() allocates a page first.
bool make_huge_page(int fd, std::uint64_t at) {
  constexpr int k_madv_collapse = 25;
  if (sys::failed(sys::fallocate(fd, 0, static_cast<std::int64_t>(at), k_page))) return false;
  const auto mapping = base::Mapping::shared_for_huge_pages(fd, at, base::Mapping::k_huge_page,
                                                            PROT_READ | PROT_WRITE);
  return mapping &&
         !sys::failed(sys::madvise(mapping->data(), base::Mapping::k_huge_page, k_madv_collapse));
}

// Whether the machine has this much memory left. If the kernel cannot allocate a page of a tmpfs,
// it calls the OOM killer.
bool machine_has(std::uint64_t bytes) {
  const std::uint64_t memory = base::available_memory();
  return memory == UINT64_MAX || memory >= bytes + base::k_memory_left_alone;
}

// Reserves memory for this part of the file, in huge pages as long as the kernel has any.
base::Result<void> reserve_memory(int fd, std::uint64_t at, std::uint64_t bytes) {
  if (at + bytes > base::file_size_limit()) return base::fail(EFBIG);
  std::uint64_t done = 0;
  while (done + base::Mapping::k_huge_page <= bytes && make_huge_page(fd, at + done))
    done += base::Mapping::k_huge_page;
  // Covers the range of the huge pages, too, because an emulator may have reported success for an
  // advice that it does not know. The call takes 0.4 us for each page that already exists.
  const long error =
      sys::fallocate(fd, 0, static_cast<std::int64_t>(at), static_cast<std::int64_t>(bytes));
  if (sys::failed(error)) return base::fail(static_cast<int>(-error));
  return {};
}

}  // namespace

void Region::warn_of_other_size(const RegionOptions& options) const {
  const RegionLayout wanted = layout_for(options.size);
  if (options.is_percent || (wanted.segment_bytes == layout_.segment_bytes &&
                             wanted.segment_count == layout_.segment_count))
    return;
  base::log(
      base::LogLevel::warn,
      "CUBESHIM_RAM has no effect: {} exists, and keeps its size of {} MiB until its last job "
      "ends or `cubeshim clear` removes it",
      path_, (layout_.file_bytes - layout_.data) >> 20);
}

base::Result<Region*> Region::attach(const RegionOptions& options, std::string& why) {
  if (!has_robust_mutexes()) {
    why = "a sandbox refuses the system call set_robust_list, which reports the death of a process";
    return base::fail(EOPNOTSUPP);
  }
  base::find_clock_shifts();
  bool has_swept = false;
  const auto sweep_once = [&] {
    if (!std::exchange(has_swept, true)) sweep_regions(options.directory);
  };
  for (int attempt = 0; attempt < 16; ++attempt) {
    auto* region = new (std::nothrow) Region;
    if (region == nullptr) return base::fail(ENOMEM);
    region->keep_ = options.keep;
    region->path_ = path_of(options.directory, options.name);
    auto opened = region->open_existing(why);
    const bool is_existing = opened.has_value();
    if (!opened && opened.error().value == ENOENT && options.create) {
      // Sweeps first, because the new region may need the memory of regions that dead jobs have
      // left behind.
      sweep_once();
      opened = region->create(options, why);
    }
    if (!opened) {
      delete region;
      // EEXIST: another process has linked its region first. The next iteration uses that region.
      if (opened.error().value == EEXIST) continue;
      return base::fail(opened.error().value);
    }
    switch (region->join(options, why)) {
      case Joined::yes:
        if (region->began_job_) sweep_once();
        if (region->began_job_ && is_existing) region->warn_of_other_size(options);
        return region;
      case Joined::no: delete region; return base::fail(EBUSY);
      case Joined::gone: delete region; break;
    }
  }
  why = "the region is removed and made again too often";
  return base::fail(EAGAIN);
}

std::string Region::path_of(const std::string& directory, const std::string& name) {
  return fmt::format("{}/cubeshim-{}-{}", directory, sys::raw(SYS_geteuid), name);
}

bool Region::may_hold(const std::string& directory, const std::string& name, std::uint64_t device) {
  const auto fd = base::open_fd(path_of(directory, name).c_str(), O_RDONLY | k_open_name);
  base::OffStack room;
  if (!fd || !room ||
      sys::pread(fd->get(), room.data(), sizeof(RegionHeader), 0) !=
          static_cast<long>(sizeof(RegionHeader)))
    return false;
  const auto& head = *reinterpret_cast<const RegionHeader*>(room.data());
  return head.magic == k_region_magic && head.version == k_layout_version &&
         head.knows_device(device);
}

base::Result<Region*> Region::look(const RegionOptions& options, std::string& why) {
  base::find_clock_shifts();
  auto* const region = new (std::nothrow) Region;
  if (region == nullptr) return base::fail(ENOMEM);
  region->path_ = path_of(options.directory, options.name);
  const auto opened = region->open_existing(why);
  if (opened) return region;
  delete region;
  return base::fail(opened.error().value);
}

base::Result<void> Region::open_existing(std::string& why) {
  const auto complain = [&](int error) {
    why = fmt::format("cannot open {}: {}", path_, base::text_of_error(error));
    return base::fail(error);
  };
  auto writable = base::open_fd(path_.c_str(), O_RDWR | k_open_name);
  if (!writable && writable.error().value == ENOENT) return base::fail(ENOENT);
  if (!writable) return complain(writable.error().value);
  struct ::stat st {};
  if (sys::failed(sys::fstat(writable->get(), &st))) return base::fail(EIO);
  // The region has ended between the two calls. A new region may exist by now.
  if (st.st_nlink == 0) return base::fail(EEXIST);
  const bool is_ours =
      S_ISREG(st.st_mode) && st.st_uid == static_cast<uid_t>(sys::raw(SYS_geteuid));
  if (!is_ours || (st.st_mode & 0177) != 0 || st.st_nlink != 1) {
    why = fmt::format(
        "{} is refused: it must be a file of this user with mode 0600 and no other name", path_);
    return base::fail(EPERM);
  }
  // The header is in an OffStack, because a thread may have a stack of only 16 KB.
  base::OffStack room;
  static_assert(sizeof(RegionHeader) <= base::OffStack::k_bytes);
  if (!room) return complain(ENOMEM);
  const long n = sys::pread(writable->get(), room.data(), sizeof(RegionHeader), 0);
  const auto& head = *reinterpret_cast<const RegionHeader*>(room.data());
  const bool known = n == static_cast<long>(sizeof head) && head.magic == k_region_magic;
  if (known && (head.version != k_layout_version || head.header_bytes != sizeof(RegionHeader))) {
    why = fmt::format(
        "{} is of layout version {}, this library has {}: remove it (cubeshim clear --force) or "
        "set another CUBESHIM_NAME",
        path_, head.version, k_layout_version);
    return base::fail(EPROTO);
  }
  const auto not_sound = [&] {
    why = fmt::format("{} is not a sound region: remove it or set another CUBESHIM_NAME", path_);
    return base::fail(EPROTO);
  };
  if (known) layout_ = head.layout;
  if (!known || static_cast<std::uint64_t>(st.st_size) != layout_.file_bytes ||
      layout_ != layout_of(layout_.segment_bytes, layout_.segment_count)) {
    return not_sound();
  }
  device_ = st.st_dev;
  inode_ = st.st_ino;
  auto readable = reopen(O_RDONLY);
  // ESTALE: the name now belongs to another file, or to none.
  if (!readable && readable.error().value == ESTALE) return base::fail(EEXIST);
  if (!readable) return complain(readable.error().value);
  if (const auto mapped = map(writable->get(), readable->get()); !mapped)
    return complain(mapped.error().value);
  pthread_mutex_t fresh;
  bool sound = init_robust_mutex(&fresh) == 0 && is_robust_mutex(header().lifecycle, fresh) &&
               is_robust_mutex(header().disk_writer, fresh) &&
               is_robust_mutex(header().cluster_writer, fresh) &&
               is_robust_mutex(header().gateway_lock, fresh);
  for (const pthread_mutex_t& lock : header().lead_locks)
    sound = sound && is_robust_mutex(lock, fresh);
  return sound ? base::Result<void>() : not_sound();
}

base::Result<void> Region::create(const RegionOptions& options, std::string& why) {
  const std::uint64_t bytes = wanted_bytes(options, why);
  if (bytes == 0) return base::fail(ENOSPC);
  layout_ = layout_for(bytes);
  const auto complain = [&](const char* what, int error) {
    why = fmt::format("cannot make a region in {}: {}: {}", options.directory, what,
                      base::text_of_error(error));
    return base::fail(error);
  };
  auto writable = base::open_fd(options.directory.c_str(), O_TMPFILE | O_RDWR, 0600);
  if (!writable) return complain("open", writable.error().value);
  const int fd = writable->get();
  // Sets the mode again, because the umask may have changed it.
  sys::raw(SYS_fchmod, fd, 0600);
  if (const long e = sys::ftruncate(fd, static_cast<std::int64_t>(layout_.file_bytes));
      sys::failed(e)) {
    return complain("ftruncate", static_cast<int>(-e));
  }
  if (const auto reserved = reserve_memory(fd, 0, layout_.index[1]); !reserved)
    return complain("fallocate", reserved.error().value);
  const base::ProcFdName own_name(fd, base::ProcFdName::Table::thread);
  auto readable = base::open_fd(own_name.c_str(), O_RDONLY);
  if (!readable) return complain("/proc/thread-self/fd", readable.error().value);
  if (const auto mapped = map(fd, readable->get()); !mapped)
    return complain("mmap", mapped.error().value);
  struct ::stat st {};
  sys::fstat(fd, &st);
  device_ = st.st_dev;
  inode_ = st.st_ino;

  RegionHeader& head = header();
  head.version = k_layout_version;
  head.header_bytes = sizeof(RegionHeader);
  head.layout = layout_;
  head.created_ns = base::wall_ns();
  head.index_tables.store(1, std::memory_order_relaxed);
  int error = init_robust_mutex(&head.lifecycle);
  for (pthread_mutex_t& lock : head.lead_locks) {
    if (error == 0) error = init_robust_mutex(&lock);
  }
  if (error == 0) error = init_robust_mutex(&head.disk_writer);
  if (error == 0) error = init_robust_mutex(&head.cluster_writer);
  if (error == 0) error = init_robust_mutex(&head.gateway_lock);
  if (error != 0) return complain("robust mutex", error);
  head.magic = k_region_magic;
  const long linked = sys::raw(SYS_linkat, AT_FDCWD, sys::arg(own_name.c_str()), AT_FDCWD,
                               sys::arg(path_.c_str()), AT_SYMLINK_FOLLOW);
  if (linked == -EEXIST) return base::fail(EEXIST);
  if (sys::failed(linked)) return complain("linkat", static_cast<int>(-linked));
  return {};
}

base::Result<void> Region::map(int read_write_fd, int read_only_fd) {
  auto control =
      base::Mapping::shared_for_huge_pages(read_write_fd, 0, layout_.data, PROT_READ | PROT_WRITE);
  if (!control) return base::fail(control.error().value);
  auto data = base::Mapping::shared_for_huge_pages(read_only_fd, layout_.data,
                                                   layout_.file_bytes - layout_.data, PROT_READ);
  if (!data) return base::fail(data.error().value);
  auto writable = base::Mapping::shared_for_huge_pages(
      read_write_fd, layout_.data, layout_.file_bytes - layout_.data, PROT_NONE);
  if (!writable) return base::fail(writable.error().value);
  // Keeps the region out of core dumps. Otherwise, if the region has lost its name, a core dump
  // would contain the whole cache.
  for (const base::Mapping* part : {&*control, &*data, &*writable})
    sys::madvise(part->data(), part->size(), MADV_DONTDUMP);
  control_ = std::move(*control);
  data_ = std::move(*data);
  writable_ = std::move(*writable);
  return {};
}

void Region::doubt_all() const {
  std::atomic<std::uint64_t>& doubted = header().doubted_ns;
  const std::uint64_t now = base::boot_ns();
  std::uint64_t before = doubted.load(std::memory_order_relaxed);
  while (before < now && !doubted.compare_exchange_weak(before, now, std::memory_order_seq_cst)) {
  }
}

base::Result<base::Mapping> Region::window(std::uint64_t at, std::size_t bytes) const {
  const auto duplicate = bytes < base::Mapping::k_huge_page
                             ? base::Mapping::duplicate
                             : base::Mapping::duplicate_for_huge_pages;
  auto window = duplicate(writable_.data() + at, bytes, PROT_READ | PROT_WRITE);
  if (window) return window;
  // Under valgrind and in some sandboxes, this use of mremap fails.
  const auto fd = reopen(O_RDWR);
  if (!fd) return base::fail(window.error().value);
  return base::Mapping::shared(fd->get(), layout_.data + at, bytes, PROT_READ | PROT_WRITE);
}

// Changes the rights of the whole mapping. So the kernel does not split the mapping, and the
// process does not exceed its limit of mappings.
std::byte* Region::writable_at(std::uint64_t at) const {
  const long error = base::sys::raw(SYS_mprotect, base::sys::arg(writable_.data()),
                                    static_cast<long>(writable_.size()), PROT_READ | PROT_WRITE);
  return base::sys::failed(error) ? nullptr : writable_.data() + at;
}

base::Result<base::UniqueFd> Region::reopen(int flags) const {
  auto fd = base::open_fd(path_.c_str(), flags | k_open_name);
  if (!fd) return base::fail(fd.error().value == ENOENT ? ESTALE : fd.error().value);
  if (!is_ours(fd->get())) return base::fail(ESTALE);
  return fd;
}

bool Region::is_ours(int fd) const {
  struct ::stat st {};
  return !sys::failed(sys::fstat(fd, &st)) && st.st_dev == device_ && st.st_ino == inode_;
}

base::Result<void> Region::reserve_segments(std::uint32_t first, std::uint32_t count) {
  const std::uint64_t bytes = std::uint64_t{layout_.segment_bytes} * count;
  if (!has_memory_for(bytes)) return base::fail(ENOMEM);
  return reserve_data(std::uint64_t{layout_.segment_bytes} * first, bytes);
}

bool Region::leaves_room_for_others(std::uint64_t bytes) const {
  const auto room = base::shared_room(path_.c_str());
  // If the region has lost its name, statfs cannot find its file system. The result is then true,
  // because the kernel itself refuses memory that it does not have.
  if (!room) return true;
  const std::uint64_t gave = header().gave_back_ns.load(std::memory_order_relaxed);
  return room->usable() >= bytes && (gave == 0 || base::coarse_monotonic_ns() - gave >= k_rest_ns);
}

bool Region::has_memory_for(std::uint64_t bytes) const {
  return leaves_room_for_others(bytes) && machine_has(bytes);
}

base::Result<void> Region::reserve_data(std::uint64_t at, std::uint64_t bytes) {
  const auto fd = reopen(O_RDWR);
  if (!fd) return base::fail(fd.error().value);
  return reserve_memory(fd->get(), layout_.data + at, bytes);
}

base::Result<void> Region::add_index_table(std::uint32_t known) {
  const RobustLock lock(&header().lifecycle);
  if (!lock) return base::fail(EBUSY);
  if (header().index_tables.load(std::memory_order_relaxed) != known) return {};
  if (known >= k_index_tables) return base::fail(ENOSPC);
  const std::uint64_t end = known + 1 < k_index_tables ? layout_.index[known + 1] : layout_.data;
  if (!has_memory_for(end - layout_.index[known])) return base::fail(ENOMEM);
  const auto fd = reopen(O_RDWR);
  if (!fd) return base::fail(fd.error().value);
  const long error = sys::fallocate(fd->get(), 0, static_cast<std::int64_t>(layout_.index[known]),
                                    static_cast<std::int64_t>(end - layout_.index[known]));
  // ENOSPC becomes ENOMEM, because a file system that is full now may soon have room again.
  if (sys::failed(error)) return base::fail(error == -ENOSPC ? ENOMEM : static_cast<int>(-error));
  // Release: a process that sees the new count finds memory in the new table. Pairs with the
  // acquire in Index::tables.
  header().index_tables.store(known + 1, std::memory_order_release);
  return {};
}

}  // namespace cube::cache
