// mmap, munmap, mremap and mlockall as requested through syscall(): they call the kernel by number.
// tcmalloc's mmap calls syscall(), so a call from there to the function named mmap, which may be
// tcmalloc's, would never end. Thread safety: as libc's.
#pragma once

namespace cube::shim {

long map_by_number(const long (&arguments)[6]);
long unmap_by_number(const long (&arguments)[6]);
long lock_all_by_number(const long (&arguments)[6]);
long remap_by_number(const long (&arguments)[6]);

}  // namespace cube::shim
