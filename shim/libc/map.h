// mmap, munmap, mremap and mlockall for callers of syscall(). These functions make the system call
// by number. They must not call the function named mmap, which may be tcmalloc's: tcmalloc's mmap
// calls syscall(), so the recursion would never end. Thread safety: as libc's.
#pragma once

namespace cube::shim {

long map_by_number(const long (&arguments)[6]);
long unmap_by_number(const long (&arguments)[6]);
long lock_all_by_number(const long (&arguments)[6]);
long remap_by_number(const long (&arguments)[6]);

}  // namespace cube::shim
