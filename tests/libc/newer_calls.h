// Declares calls that the libc of this build lacks and its headers do not declare. The tests
// include it before everything else.
#pragma once

#include <fcntl.h>
#include <features.h>
#include <sys/stat.h>
#include <sys/types.h>

#if !__GLIBC_PREREQ(2, 27)
extern "C" int memfd_create(const char* name, unsigned flags) noexcept;
extern "C" ssize_t copy_file_range(int from, off_t* from_at, int to, off_t* to_at, size_t n,
                                   unsigned flags);
extern "C" int mlock2(const void* at, size_t n, unsigned flags) noexcept;
#endif
#if !__GLIBC_PREREQ(2, 28)
#include <linux/stat.h>
extern "C" int statx(int dir, const char* path, int flags, unsigned mask,
                     struct ::statx* x) noexcept;
#endif
#if !__GLIBC_PREREQ(2, 34)
extern "C" int close_range(unsigned first, unsigned last, int flags) noexcept;
#endif
#if !__GLIBC_PREREQ(2, 36)
#include <signal.h>
extern "C" int pidfd_open(pid_t process, unsigned flags) noexcept;
extern "C" int pidfd_getfd(int process, int fd, unsigned flags) noexcept;
extern "C" int pidfd_send_signal(int process, int signal, siginfo_t* info, unsigned flags) noexcept;
#endif
