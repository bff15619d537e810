// stdio. libc's streams call libc's own read and lseek, which bypass this library. So a stream over
// a served file is a cookie stream, whose functions are our exports on the placeholder's fd. The
// stream and the fd share one offset, and still work after the file is materialized. The stream's
// _fileno is the fd, because std::basic_filebuf reads through it.
#include <stdio_ext.h>

#include <cstdlib>
#include <cstring>

#include "cache/base/process/proc_fd_name.h"
#include "shim/calls/file_calls.h"
#include "shim/calls/new_fds.h"
#include "shim/calls/open/open_plan.h"
#include "shim/fd/materialize.h"
#include "shim/libc/exports.h"
#include "shim/libc/profiled.h"
#include "shim/libc/served_stream.h"
#include "shim/lifecycle/lifecycle.h"
#include "shim/process/c_result.h"
#include "shim/process/cancellation.h"
#include "shim/process/process.h"
#include "shim/process/real_libc.h"

namespace shim = cube::shim;
namespace real = cube::shim::real;

namespace {

int fd_of(void* cookie) { return static_cast<int>(reinterpret_cast<std::intptr_t>(cookie)); }

// libc reads a block of the file at a time for a stream over a file, but BUFSIZ bytes for a cookie
// stream. The program can see the difference in the fd's offset, so this stream reads a block at a
// time.
ssize_t cookie_read(void* cookie, char* to, size_t n) {
  constexpr std::size_t k_block = 4096;
  return export_read(fd_of(cookie), to, n == BUFSIZ ? k_block : n);
}
ssize_t cookie_write(void* cookie, const char* from, size_t n) {
  return ::write(fd_of(cookie), from, n);
}
int cookie_seek(void* cookie, off64_t* offset, int whence) {
  const off_t at = export_lseek(fd_of(cookie), *offset, whence);
  if (at < 0) return -1;
  *offset = at;
  return 0;
}
int cookie_close(void* cookie) { return export_close(fd_of(cookie)); }

// Returns the open flags for an fopen mode, or -1 if the mode does not begin with 'r', 'w' or 'a'.
int flags_of(const char* mode) {
  int flags = 0;
  switch (*mode) {
    case 'r': flags = O_RDONLY; break;
    case 'w': flags = O_WRONLY | O_CREAT | O_TRUNC; break;
    case 'a': flags = O_WRONLY | O_CREAT | O_APPEND; break;
    default: return -1;
  }
  for (const char* c = mode + 1; *c != '\0' && *c != ','; ++c) {
    if (*c == '+') flags = (flags & ~O_ACCMODE) | O_RDWR;
    if (*c == 'e') flags |= O_CLOEXEC;
    if (*c == 'x') flags |= O_EXCL;
  }
  return flags;
}

// Conversions (",ccs=") and mapped streams ("m") are left to libc.
bool is_plain_read(const char* mode) {
  return *mode == 'r' && strchr(mode, '+') == nullptr && strchr(mode, 'm') == nullptr &&
         strchr(mode, ',') == nullptr;
}

// The bit of FILE::_flags2 for a stream opened with "e". Before glibc 2.41, freopen does not clear
// this bit.
constexpr int k_close_on_exec_stream = 64;

// In libc, a pointer to a table of functions follows each FILE. All cookie streams have the same
// table, but only cookie streams of this library have a _fileno.
const void* functions_of(const FILE* stream) {
  const void* table = nullptr;
  std::memcpy(&table, reinterpret_cast<const char*>(stream) + sizeof(FILE), sizeof table);
  return table;
}
constinit std::atomic<const void*> g_cookie_functions{nullptr};

// The _fileno of a stream whose freopen has failed. Cookie streams of the program have -2.
constexpr int k_closed = -1;
constexpr int k_no_reads = 4, k_no_writes = 8;  // of FILE::_flags

bool is_ours(const FILE* stream) {
  return stream->_fileno >= k_closed &&
         functions_of(stream) == g_cookie_functions.load(std::memory_order_relaxed);
}

// In libc, the cookie follows the pointer to the functions.
void set_fd(FILE* stream, int fd) {
  void* const cookie = reinterpret_cast<void*>(static_cast<std::intptr_t>(fd));
  std::memcpy(reinterpret_cast<char*>(stream) + sizeof(FILE) + sizeof(void*), &cookie,
              sizeof cookie);
  stream->_fileno = fd;
}

// Makes a stream over a served fd, or returns null.
FILE* make_stream(int fd) {
  const cookie_io_functions_t functions{cookie_read, cookie_write, cookie_seek, cookie_close};
  FILE* const stream =
      fopencookie(reinterpret_cast<void*>(static_cast<std::intptr_t>(fd)), "r", functions);
  if (stream == nullptr) return nullptr;
  stream->_fileno = fd;
  // A cookie stream has no room for wide characters (wide.cc), so it is a stream of bytes. Old
  // glibcs leave _wide_data uninitialized.
  stream->_mode = -1;
  stream->_wide_data = reinterpret_cast<_IO_wide_data*>(-1);
  g_cookie_functions.store(functions_of(stream), std::memory_order_relaxed);
  return stream;
}

// Returns -1 for a stream without an fd. libc sets _fileno only in streams over files, so that of
// an open_memstream is whatever its memory had before.
int fd_of_stream(const FILE* stream) {
  constexpr int k_is_file = 0x2000;  // of FILE::_flags
  return (stream->_flags & k_is_file) != 0 ? stream->_fileno : -1;
}

bool is_served(int fd) {
  const shim::RowKind kind = shim::g_fds.kind(fd);
  return kind == shim::RowKind::served || kind == shim::RowKind::large;
}

// True if the profiler would miss the reads that libc makes for the stream. Considers only
// read-only streams of regular files.
bool is_to_be_watched(int fd, const char* mode) {
  if (!is_plain_read(mode) || !shim::profile::is_watched(fd)) return false;
  struct ::stat st {};
  const bool is_regular =
      !cube::base::sys::failed(cube::base::sys::fstat(fd, &st)) && S_ISREG(st.st_mode);
  return is_regular && (cube::base::sys::fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY;
}

FILE* open_watched_stream(const char* path, const char* mode) {
  const int fd = export_open(path, flags_of(mode), 0666);
  if (fd < 0) return nullptr;
  FILE* const stream = is_to_be_watched(fd, mode) ? make_stream(fd) : export_fdopen(fd, mode);
  if (stream != nullptr && (flags_of(mode) & O_CLOEXEC) != 0)
    stream->_flags2 |= k_close_on_exec_stream;
  if (stream == nullptr) {
    const shim::KeepErrno keep;
    export_close(fd);
  }
  return stream;
}

FILE* open_stream(const char* path, const char* mode, FILE* (*libcs)(const char*, const char*)) {
  shim::cancellation_point();
  if (shim::profile::is_on() && path != nullptr && mode != nullptr && is_plain_read(mode))
      [[unlikely]]
    return open_watched_stream(path, mode);
  if (path == nullptr || mode == nullptr || !shim::process::tells()) return libcs(path, mode);
  const int flags = flags_of(mode);
  if (flags < 0) return libcs(path, mode);
  // If libc must make the open, plans the open with a flag that is never served.
  shim::OpenPlan plan(AT_FDCWD, path, is_plain_read(mode) ? flags : flags | O_NOATIME);
  if (plan.is_answered()) {
    const int fd = plan.result();
    if (fd < 0) return nullptr;
    FILE* const stream = is_served(fd) ? make_stream(fd) : real::fdopen(fd, mode);
    if (stream != nullptr && (flags & O_CLOEXEC) != 0) stream->_flags2 |= k_close_on_exec_stream;
    if (stream == nullptr) {
      const shim::KeepErrno keep;
      export_close(fd);
    }
    return stream;
  }
  FILE* const stream = libcs(path, mode);
  plan.note(stream != nullptr ? fileno(stream) : -1);
  return stream;
}

// Closes the file of a stream whose freopen has failed. The program may pass the stream to fclose
// or to another freopen. Returns null.
FILE* close_ours(FILE* stream) {
  const shim::KeepErrno keep;
  if (stream->_fileno != k_closed) export_close(stream->_fileno);
  set_fd(stream, k_closed);
  __fpurge(stream);
  stream->_flags |= k_no_reads | k_no_writes;
  return nullptr;
}

// libc's freopen crashes on cookie streams, and callers expect the same FILE to remain valid. So
// this function opens the new file, puts it over the old fd, and clears the buffer of the stream.
FILE* reopen_ours(const char* path, int flags, FILE* stream) {
  const int old_fd = stream->_fileno;
  if (flags < 0 || (path == nullptr && old_fd == k_closed)) {
    errno = flags < 0 ? EINVAL : EBADF;
    return close_ours(stream);
  }
  const cube::base::ProcFdName own_path(old_fd);
  if (path == nullptr) {
    if (const int error = shim::materialize(old_fd, "freopen"); error != 0) {
      shim::to_c(error);
      return nullptr;
    }
    path = own_path.c_str();
  }
  // Before glibc 2.41, freopen keeps the "e" of the previous mode.
  if (real::is_libc_from("2.41")) stream->_flags2 &= ~k_close_on_exec_stream;
  if ((flags & O_CLOEXEC) != 0) stream->_flags2 |= k_close_on_exec_stream;
  if ((stream->_flags2 & k_close_on_exec_stream) != 0) flags |= O_CLOEXEC;
  fflush(stream);
  const int fd = export_open(path, flags, 0666);
  if (fd < 0) return close_ours(stream);
  if (old_fd == k_closed) {
    set_fd(stream, fd);
  } else {
    const bool is_moved = export_dup3(fd, old_fd, flags & O_CLOEXEC) >= 0;
    const shim::KeepErrno keep;
    export_close(fd);
    if (!is_moved) return close_ours(stream);
  }
  __fpurge(stream);
  // A stream of which nothing was read can still become a wide stream (wide.cc).
  stream->_IO_read_ptr = stream->_IO_read_end = stream->_IO_read_base;
  clearerr(stream);
  stream->_flags &= ~(k_no_reads | k_no_writes);
  if ((flags & O_ACCMODE) == O_RDONLY) stream->_flags |= k_no_writes;
  if ((flags & O_ACCMODE) == O_WRONLY) stream->_flags |= k_no_reads;
  return stream;
}

FILE* reopen_stream(const char* path, const char* mode, FILE* stream,
                    FILE* (*libcs)(const char*, const char*, FILE*)) {
  if (stream == nullptr || mode == nullptr) return libcs(path, mode, stream);
  const int flags = flags_of(mode);
  if (is_ours(stream)) return reopen_ours(path, flags, stream);
  if (!shim::process::tells()) return libcs(path, mode, stream);
  const auto held = shim::file_calls::note_close(fd_of_stream(stream));
  // libc must open the file, so the open is planned with a flag that is never served.
  shim::OpenPlan plan(AT_FDCWD, path, (flags < 0 ? O_RDONLY : flags) | O_NOATIME);
  FILE* const reopened = libcs(path, mode, stream);
  plan.note(reopened != nullptr ? fileno(reopened) : -1);
  return reopened;
}

}  // namespace

bool shim::is_served_stream(const FILE* stream) {
  return stream->_fileno != k_closed && is_ours(stream);
}

FILE* export_fopen(const char* path, const char* mode) {
  return open_stream(path, mode, [](const char* p, const char* m) { return real::fopen(p, m); });
}
FILE* export_fopen64(const char* path, const char* mode) {
  return open_stream(path, mode, [](const char* p, const char* m) { return real::fopen64(p, m); });
}
FILE* export_fdopen(int fd, const char* mode) {
  shim::placeholder::unpark_if(fd);
  if (!is_served(fd) || mode == nullptr || !is_plain_read(mode)) {
    if (mode != nullptr && shim::profile::is_on() && is_to_be_watched(fd, mode))
      return make_stream(fd);
    shim::materialize(fd);
    return real::fdopen(fd, mode);
  }
  return make_stream(fd);
}
FILE* export_freopen(const char* path, const char* mode, FILE* stream) {
  return reopen_stream(path, mode, stream, [](const char* p, const char* m, FILE* s) {
    return real::freopen(p, m, s);
  });
}
FILE* export_freopen64(const char* path, const char* mode, FILE* stream) {
  return reopen_stream(path, mode, stream, [](const char* p, const char* m, FILE* s) {
    return real::freopen64(p, m, s);
  });
}
int export_fclose(FILE* stream) {
  if (stream == nullptr) return real::fclose(stream);
  if (stream == stderr) shim::lifecycle::stderr_ends();
  void* const wide = shim::wide_part_of(stream);
  // The writer must end after fclose has written the buffered bytes.
  using shim::file_calls::ClosingFd;
  const auto held = shim::is_served_stream(stream)
                        ? ClosingFd{}
                        : shim::file_calls::note_close(fd_of_stream(stream));
  // A cookie stream closes its fd through our export.
  CUBE_PLAIN(int, { return real::fclose(stream); });
  const bool is_recorded = shim::profile::is_on() && !shim::is_served_stream(stream);
  const int result = is_recorded
                         ? shim::profiled(CUBE_SUBJECT(close, .fd = fd_of_stream(stream)), plain)
                         : plain();
  shim::free_wide_part(wide);
  return result;
}
FILE* export_tmpfile() {
  shim::expect_new_fd();
  return real::tmpfile();
}
FILE* export_tmpfile64() {
  shim::expect_new_fd();
  return real::tmpfile64();
}
