// mmap, munmap, mremap and mlockall for callers of syscall(). These functions make the system call
// by number. A call of the function named mmap could reach tcmalloc's mmap, which calls syscall(),
// so the recursion would never end. Thread safety: as libc's.
#pragma once

namespace cube::shim {

long map_by_number(const long (&arguments)[6]);
long unmap_by_number(const long (&arguments)[6]);
long lock_all_by_number(const long (&arguments)[6]);
long remap_by_number(const long (&arguments)[6]);

}  // namespace cube::shim
