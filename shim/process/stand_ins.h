// Stand-ins for functions of libc: raw system calls with libc's error convention. Stand-ins are
// used until our constructor has run. If an older libc lacks the function, its stand-in is used
// permanently, because `syscall` leads to our exports in any case. Thread-safe and
// async-signal-safe.
#pragma once

#include "shim/process/libc_types.h"

namespace cube::shim::stand_in {

int open(const char* path, int flags, ...);
int openat(int dir, const char* path, int flags, ...);
int fstat(int fd, struct ::stat* st);
ssize_t read(int fd, void* to, size_t n);
ssize_t pread(int fd, void* to, size_t n, off_t at);
off_t lseek(int fd, off_t offset, int whence);
int close(int fd);
void* mmap(void* at, size_t n, int protection, int flags, int fd, off_t offset);
int munmap(void* at, size_t n);
int madvise(void* at, size_t n, int advice);
int stat(const char* path, struct ::stat* st);
int lstat(const char* path, struct ::stat* st);
int fstatat(int dir, const char* path, struct ::stat* st, int flags);
int statx(int dir, const char* path, int flags, unsigned mask, struct ::statx* x);
ssize_t preadv2(int fd, const struct ::iovec* parts, int count, off_t at, int flags);
int close_range(unsigned first, unsigned last, int flags);
void closefrom(int first);
int fcntl64(int fd, int command, ...);
ssize_t getdents64(int fd, void* to, size_t n);
int execveat(int dir, const char* path, char* const* arguments, char* const* environment,
             int flags);
int renameat2(int from_dir, const char* from, int to_dir, const char* to, unsigned flags);
int mknod(const char* path, mode_t mode, dev_t device);
int mknodat(int dir, const char* path, mode_t mode, dev_t device);
ssize_t copy_file_range(int from, off_t* from_at, int to, off_t* to_at, size_t n, unsigned flags);
int memfd_create(const char* name, unsigned flags);
int pidfd_open(pid_t pid, unsigned flags);
int pidfd_getfd(int pidfd, int target, unsigned flags);

inline constexpr auto open64 = open;
inline constexpr auto __open = open;
inline constexpr auto __open64 = open;
inline constexpr auto openat64 = openat;
inline constexpr auto fstat64 = fstat;
inline constexpr auto stat64 = stat;
inline constexpr auto lstat64 = lstat;
inline constexpr auto fstatat64 = fstatat;
inline constexpr auto preadv64v2 = preadv2;
inline constexpr auto __read = read;
inline constexpr auto pread64 = pread;
inline constexpr auto __pread64 = pread;
inline constexpr auto lseek64 = lseek;
inline constexpr auto __lseek = lseek;
inline constexpr auto __close = close;
inline constexpr auto mmap64 = mmap;

}  // namespace cube::shim::stand_in
