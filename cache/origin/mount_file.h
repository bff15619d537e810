// A file of a mount that is open for reading. Reading a whole file takes one open, one statx, one
// read and one close. Thread-safe. Makes raw system calls only.
#pragma once

#include <string_view>

#include "cache/base/settings/stats.h"
#include "cache/origin/links_on_way.h"
#include "cache/record/file_stat.h"
#include "cache/region/fetch_scope.h"
#include "cache/region/posix_locks.h"

namespace cube::cache {

class MountFile {
 public:
  // In all functions, `stats` counts requests to the origin. Null: the requests are not counted.
  static base::Result<MountFile> open(const char* path, int flags, base::Stats* stats);

  const FileStat& stat() const { return stat_; }
  int fd() const { return fd_.get(); }
  // Reads the whole file into `to`, which must have room for stat().size bytes. ESTALE: the file
  // does not match its stat. Other errors are those of the origin. The fd stays at offset 0.
  base::Result<void> read_whole(std::byte* to, base::Stats* stats) const;
  // Asks the server whether the file is unchanged since stat().
  bool is_unchanged(base::Stats* stats) const;
  // Whether the path contains no symbolic links. Usually open() has found this out already; with an
  // old kernel, /proc is asked now.
  bool is_physical(std::string_view absolute_path) const;
  // Whether the path leads other processes to other files.
  bool is_private() const { return links_ == LinksOnWay::magic; }
  // Passes the fd to the caller. -1: the fd has been closed (see FetchScope).
  int release() { return fd_.release(); }

 private:
  // An fd that is registered with the thread's FetchScope, so that it is closed after a jump out of
  // the fetch.
  class Fd {
   public:
    Fd() = default;
    explicit Fd(int fd) : fd_(fd), is_noted_(FetchScope::note_fd(fd)) {}
    Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)), is_noted_(other.is_noted_) {}
    Fd& operator=(Fd&& other) noexcept {
      if (this != &other) {
        close();
        fd_ = std::exchange(other.fd_, -1);
        is_noted_ = other.is_noted_;
      }
      return *this;
    }
    Fd(const Fd&) = delete;
    Fd& operator=(const Fd&) = delete;
    ~Fd() { close(); }

    int get() const { return fd_; }
    bool is_own() const { return !is_noted_ || FetchScope::has_fd(fd_); }
    int release() {
      const int fd = std::exchange(fd_, -1);
      return fd < 0 || !is_noted_ || FetchScope::let_go_of_fd(fd) ? fd : -1;
    }

   private:
    void close() {
      if (const int fd = release(); fd >= 0) PosixLocks::close(fd);
    }
    int fd_ = -1;
    bool is_noted_ = false;
  };
  Fd fd_;
  FileStat stat_{};
  LinksOnWay links_ = LinksOnWay::unknown;
};

}  // namespace cube::cache
