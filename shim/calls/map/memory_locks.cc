#include "shim/calls/map/memory_locks.h"

#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <span>

#include "shim/calls/map/process_maps.h"
#include "shim/fd/open_file.h"
#include "shim/process/attachment.h"
#include "shim/process/own_library.h"
#include "shim/process/process.h"

namespace cube::shim::memory_locks {
namespace {

namespace sys = base::sys;
using process_maps::ProgramMapping;
using process_maps::Range;
using process_maps::visit_mappings;

Range range_of(std::span<const std::byte> memory) {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
  return {begin, begin + memory.size()};
}

// The memory that is neither counted nor locked: the library, its tables, the region. Sorted by
// address.
class OwnRanges {
 public:
  OwnRanges() {
    add({reinterpret_cast<std::uintptr_t>(__ehdr_start), reinterpret_cast<std::uintptr_t>(_end)});
    add(range_of(open_files::memory()));
    add(range_of(cache::LargeFile::memory()));
    if (cache::FileCache* const cache = attachment::attached_cache(); cache != nullptr) {
      for (const auto& part : cache->region().mapped()) add(range_of(part));
      struct ::stat st {};
      if (!sys::failed(
              sys::fstatat(AT_FDCWD, cache->region().path().c_str(), &st, AT_SYMLINK_NOFOLLOW)))
        region_inode_ = st.st_ino;
    }
  }
  // Calls act(range) for each part of the mapping that lies outside these ranges.
  template <typename Act>
  void visit_others(const ProgramMapping& mapping, Act&& act) const {
    // Only the library's window for filling a segment is a writable mapping of the region.
    if (mapping.is_shared_and_writable && mapping.inode == region_inode_ && region_inode_ != 0)
      return;
    Range all = mapping.range;
    for (std::size_t i = 0; i < count_ && all.begin < all.end; ++i) {
      if (ranges_[i].end <= all.begin || ranges_[i].begin >= all.end) continue;
      if (ranges_[i].begin > all.begin) act(Range{all.begin, ranges_[i].begin});
      all.begin = ranges_[i].end;
    }
    if (all.begin < all.end) act(all);
  }

 private:
  void add(const Range& range) {
    if (range.bytes() == 0) return;
    std::size_t at = count_++;
    for (; at > 0 && ranges_[at - 1].begin > range.begin; --at) ranges_[at] = ranges_[at - 1];
    ranges_[at] = range;
  }
  std::array<Range, 6> ranges_;
  std::size_t count_ = 0;
  std::uint64_t region_inode_ = 0;
};

bool is_exempt() {
  __user_cap_header_struct head{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
  if (sys::failed(sys::raw(SYS_capget, sys::arg(&head), sys::arg(data)))) return false;
  return (data[CAP_TO_INDEX(CAP_IPC_LOCK)].effective & CAP_TO_MASK(CAP_IPC_LOCK)) != 0;
}

// Whether the program may lock its memory, not counting the library's memory. `fits`: the memory
// fits the limit. `exempt`: no limit applies to the program.
enum class Right : std::uint8_t { no, fits, exempt };
Right right_to_lock(const OwnRanges& own) {
  struct ::rlimit limit {};
  if (sys::failed(sys::raw(SYS_prlimit64, 0, RLIMIT_MEMLOCK, 0, sys::arg(&limit))))
    return Right::no;
  std::uintptr_t all = 0;
  const bool is_known = visit_mappings([&](const ProgramMapping& mapping) {
    own.visit_others(mapping, [&](const Range& part) { all += part.bytes(); });
  });
  if (!is_known) return Right::no;
  if (limit.rlim_cur != 0 && all <= limit.rlim_cur) return Right::fits;
  return is_exempt() ? Right::exempt : Right::no;
}

// Ignores pages that cannot be allocated, as the kernel's mlockall does.
bool lock_now(const OwnRanges& own, int flags, Right right) {
  bool is_locked = true;
  const bool is_read = visit_mappings([&](const ProgramMapping& mapping) {
    own.visit_others(mapping, [&](const Range& part) {
      const auto* const at = reinterpret_cast<const void*>(part.begin);
      // Addresses above the user's half belong to the kernel (vsyscall).
      if (static_cast<std::intptr_t>(part.begin) < 0) return;
      const long error = sys::mlock2(at, part.bytes(), MLOCK_ONFAULT);
      // If the limit allows the lock, ENOMEM means that another thread has unmapped the part.
      if (sys::failed(error) && !(error == -ENOMEM && right == Right::fits)) is_locked = false;
      if ((flags & MCL_ONFAULT) == 0) sys::mlock2(at, part.bytes(), 0);
    });
  });
  return is_read && is_locked;
}

}  // namespace

int lock_all(int flags, int (*kernels)(int flags)) {
  static constinit std::atomic<bool> locks_future{false};
  const bool is_known = (flags & ~(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT)) == 0 &&
                        (flags & (MCL_CURRENT | MCL_FUTURE)) != 0;
  if (!is_known || !process::is_active() || !process::owns_table()) return kernels(flags);
  const bool future = (flags & MCL_FUTURE) != 0;
  // The kernel also locks later mappings, and would then refuse a mapping of the region or make the
  // region resident. So the library makes its own mappings now.
  if (future) {
    attachment::cache();
    open_files::reserve();
    cache::LargeFile::reserve();
  }
  if ((flags & MCL_CURRENT) == 0) {
    const int result = kernels(flags);
    if (result == 0) locks_future.store(true, std::memory_order_relaxed);
    return result;
  }
  const OwnRanges own;
  // If the program's own memory exceeds the limit, the kernel refuses the call, because the kernel
  // counts the library's memory, too.
  const Right right = right_to_lock(own);
  if (right == Right::no) return kernels(flags);
  if (future) {
    if (const int result = kernels(flags & ~MCL_CURRENT); result != 0) return result;
  } else if (locks_future.load(std::memory_order_relaxed)) {
    sys::raw(SYS_munlockall);
  }
  locks_future.store(future, std::memory_order_relaxed);
  return lock_now(own, flags, right) ? 0 : kernels(flags);
}

}  // namespace cube::shim::memory_locks
