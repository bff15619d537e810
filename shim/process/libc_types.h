// The headers that declare the types named in hooks.def, in one place. Thread safety: nothing to
// protect.
#pragma once

#include <aio.h>
#include <dirent.h>
#include <fcntl.h>
#include <glob.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>
#include <utime.h>
#include <wordexp.h>

struct open_how;  // <linux/openat2.h>

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cwchar>
