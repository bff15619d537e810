// mmap and related calls. An mmap without an fd, such as an allocator's, is left to libc.
#include <sys/syscall.h>

#include <cstdarg>

#include "shim/calls/file_calls.h"
#include "shim/calls/map/large_maps.h"
#include "shim/calls/map/mappings.h"
#include "shim/calls/map/memory_locks.h"
#include "shim/fd/fd_table.h"
#include "shim/fd/materialize.h"
#include "shim/libc/exports.h"
#include "shim/libc/map.h"
#include "shim/libc/profiled.h"
#include "shim/process/c_result.h"
#include "shim/process/real_libc.h"

namespace shim = cube::shim;
namespace real = cube::shim::real;

namespace {

void* map(void* at, size_t n, int protection, int flags, int fd, off_t offset,
          void* (*libcs)(void*, size_t, int, int, int, off_t)) {
  const shim::RowKind kind =
      (flags & MAP_ANONYMOUS) != 0 ? shim::RowKind::none : shim::g_fds.kind(fd);
  // A shared mapping can write to the file after the last close, even if it is read-only now,
  // because mprotect can make it writable.
  if (kind == shim::RowKind::writer && (flags & MAP_SHARED) != 0)
    shim::let_writer_outlive_us(fd, cube::cache::Sharing::mapped);
  if (kind == shim::RowKind::served) {
    if (const auto answer = shim::file_calls::map(fd, at, n, protection, flags, offset); answer) {
      return reinterpret_cast<void*>(shim::to_c(*answer));
    }
  }
  if (kind == shim::RowKind::large) {
    if (const auto answer = shim::large_maps::map(fd, {at, n, protection, flags, offset}); answer) {
      return reinterpret_cast<void*>(shim::to_c(*answer));
    }
  }
  void* const mapped = shim::by_kernel(libcs(at, n, protection, flags, fd, offset));
  // A new mapping proves that any earlier mapping at its addresses is gone, even if this library
  // did not see the munmap.
  if (mapped != MAP_FAILED && shim::mappings::any()) shim::mappings::unmapped(mapped, n);
  if (mapped != MAP_FAILED && kind == shim::RowKind::large)
    shim::large_maps::note_mapping_by_libc();
  return mapped;
}

int unmap(void* at, size_t n, int (*libcs)(void*, size_t)) {
  const bool sound = reinterpret_cast<std::uintptr_t>(at) % cube::cache::k_page == 0 && n != 0;
  if (sound && shim::mappings::any()) shim::mappings::unmapped(at, n);
  return libcs(at, n);
}

// If the kernel has accepted the advice, the threads that read mappings ahead follow it, too.
int note_advice(int result, void* at, size_t n, int advice) {
  const bool is_about_reading = advice >= MADV_NORMAL && advice <= MADV_WILLNEED;
  if (is_about_reading && result == 0 && shim::mappings::any()) [[unlikely]]
    shim::mappings::advised(at, n, advice);
  return result;
}

void* remap(const shim::mappings::RemapRequest& request,
            void* (*libcs)(const shim::mappings::RemapRequest&)) {
  if (shim::mappings::any()) {
    const auto answer = shim::mappings::remap(request);
    if (answer) return reinterpret_cast<void*>(shim::to_c(*answer));
  }
  return libcs(request);
}

}  // namespace

#define CUBE_MMAP(name)                                                                      \
  void* export_##name(void* at, size_t n, int protection, int flags, int fd, off_t offset) { \
    CUBE_PLAIN(void*, {                                                                      \
      return map(at, n, protection, flags, fd, offset,                                       \
                 [](void* a, size_t b, int c, int d, int e, off_t f) {                       \
                   return real::name(a, b, c, d, e, f);                                      \
                 });                                                                         \
    });                                                                                      \
    if (fd < 0 || (flags & MAP_ANONYMOUS) != 0) return plain();                              \
    CUBE_PROFILED(map, .fd = fd, .wanted = n);                                               \
  }
CUBE_MMAP(mmap)
CUBE_MMAP(mmap64)
int export_munmap(void* at, size_t n) {
  return unmap(at, n, [](void* a, size_t b) { return real::munmap(a, b); });
}
int export_madvise(void* at, size_t n, int advice) {
  return note_advice(real::madvise(at, n, advice), at, n, advice);
}
// The POSIX_MADV_* values about reading equal the MADV_* values.
int export_posix_madvise(void* at, size_t n, int advice) {
  return note_advice(real::posix_madvise(at, n, advice), at, n, advice);
}
int export_mlockall(int flags) {
  return shim::memory_locks::lock_all(flags, [](int f) { return real::mlockall(f); });
}
void* export_mremap(void* at, size_t old_size, size_t new_size, int flags, ...) {
  va_list list;
  va_start(list, flags);
  void* const to = va_arg(list, void*);
  va_end(list);
  return remap({at, old_size, new_size, flags, to}, [](const auto& r) {
    return real::mremap(r.at, r.old_size, r.new_size, r.flags, r.to);
  });
}

namespace cube::shim {

long map_by_number(const long (&a)[6]) {
  return reinterpret_cast<long>(
      map(reinterpret_cast<void*>(a[0]), static_cast<size_t>(a[1]), static_cast<int>(a[2]),
          static_cast<int>(a[3]), static_cast<int>(a[4]), a[5],
          [](void* at, size_t n, int protection, int flags, int fd, off_t offset) {
            return reinterpret_cast<void*>(
                real::syscall(SYS_mmap, at, n, long{protection}, long{flags}, long{fd}, offset));
          }));
}
long unmap_by_number(const long (&a)[6]) {
  return unmap(reinterpret_cast<void*>(a[0]), static_cast<size_t>(a[1]), [](void* at, size_t n) {
    return static_cast<int>(real::syscall(SYS_munmap, at, n, 0L, 0L, 0L, 0L));
  });
}
long lock_all_by_number(const long (&a)[6]) {
  return memory_locks::lock_all(static_cast<int>(a[0]), [](int flags) {
    return static_cast<int>(real::syscall(SYS_mlockall, long{flags}, 0L, 0L, 0L, 0L, 0L));
  });
}
long remap_by_number(const long (&a)[6]) {
  const mappings::RemapRequest request{reinterpret_cast<void*>(a[0]), static_cast<size_t>(a[1]),
                                       static_cast<size_t>(a[2]), static_cast<int>(a[3]),
                                       reinterpret_cast<void*>(a[4])};
  return reinterpret_cast<long>(remap(request, [](const auto& r) {
    return reinterpret_cast<void*>(
        real::syscall(SYS_mremap, r.at, r.old_size, r.new_size, long{r.flags}, r.to, 0L));
  }));
}

}  // namespace cube::shim
