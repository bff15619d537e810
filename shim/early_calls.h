// Stand-ins for the time before our constructor has run: raw system calls with libc's error convention.
// Thread safety and async-signal safety: yes.
#pragma once

#include "shim/libc_types.h"

namespace cube::shim::early {

int open(const char* path, int flags, ...);
int openat(int dir, const char* path, int flags, ...);
int fstat(int fd, struct ::stat* st);
ssize_t read(int fd, void* to, size_t n);
ssize_t pread(int fd, void* to, size_t n, off_t at);
off_t lseek(int fd, off_t offset, int whence);
int close(int fd);
void* mmap(void* at, size_t n, int protection, int flags, int fd, off_t offset);
int munmap(void* at, size_t n);

inline constexpr auto open64 = open;
inline constexpr auto __open = open;
inline constexpr auto __open64 = open;
inline constexpr auto openat64 = openat;
inline constexpr auto fstat64 = fstat;
inline constexpr auto __read = read;
inline constexpr auto pread64 = pread;
inline constexpr auto __pread64 = pread;
inline constexpr auto lseek64 = lseek;
inline constexpr auto __lseek = lseek;
inline constexpr auto __close = close;
inline constexpr auto mmap64 = mmap;

}  // namespace cube::shim::early
