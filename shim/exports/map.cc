// mmap and its kin. An allocator's mmap has no fd and goes straight through.
#include <cstdarg>

#include "shim/calls/c_result.h"
#include "shim/calls/file_calls.h"
#include "shim/calls/mappings.h"
#include "shim/exports/exports.h"
#include "shim/fd_table.h"
#include "shim/materialize.h"
#include "shim/real_libc.h"

namespace shim = cube::shim;
namespace real = cube::shim::real;

namespace {

void* map(void* at, size_t n, int protection, int flags, int fd, off_t offset,
          void* (*libcs)(void*, size_t, int, int, int, off_t)) {
  const shim::RowKind kind = (flags & MAP_ANONYMOUS) != 0 ? shim::RowKind::none : shim::g_fds.kind(fd);
  // A shared mapping writes on after the last close. One that may only be read now can be made writable by mprotect.
  if (kind == shim::RowKind::writer && (flags & MAP_SHARED) != 0) shim::let_writer_outlive_us(fd, cube::cache::Sharing::mapped);
  if (kind == shim::RowKind::served) {
    if (const auto answer = shim::file_calls::map(fd, at, n, protection, flags, offset); answer) {
      return reinterpret_cast<void*>(shim::to_c(*answer));
    }
  }
  void* const mapped = libcs(at, n, protection, flags, fd, offset);
  // Nothing of ours is where something new is, whoever has unmapped it.
  if (mapped != MAP_FAILED && shim::mappings::any()) shim::mappings::unmapped(mapped, n);
  return mapped;
}

}  // namespace

void* export_mmap(void* at, size_t n, int protection, int flags, int fd, off_t offset) {
  return map(at, n, protection, flags, fd, offset,
             [](void* a, size_t b, int c, int d, int e, off_t f) { return real::mmap(a, b, c, d, e, f); });
}
void* export_mmap64(void* at, size_t n, int protection, int flags, int fd, off_t offset) {
  return map(at, n, protection, flags, fd, offset,
             [](void* a, size_t b, int c, int d, int e, off_t f) { return real::mmap64(a, b, c, d, e, f); });
}
int export_munmap(void* at, size_t n) {
  const bool sound = reinterpret_cast<std::uintptr_t>(at) % cube::cache::k_page == 0 && n != 0;
  if (sound && shim::mappings::any()) shim::mappings::unmapped(at, n);
  return real::munmap(at, n);
}
void* export_mremap(void* at, size_t old_size, size_t new_size, int flags, ...) {
  va_list list;
  va_start(list, flags);
  void* const to = va_arg(list, void*);
  va_end(list);
  if (shim::mappings::any()) {
    const auto answer = shim::mappings::remap({at, old_size, new_size, flags, to});
    if (answer) return reinterpret_cast<void*>(shim::to_c(*answer));
  }
  return real::mremap(at, old_size, new_size, flags, to);
}
