// A reference to a large file, for a call that may wait for the origin. The object lives on the
// stack of the call. If a signal handler jumps out of the call, the reference is dropped later
// (held.h). The object is empty if the fd now refers to another file, because a close bypassed
// this library. Thread-safe and async-signal-safe.
#pragma once

#include "cache/base/memory/held.h"
#include "shim/fd/fd_table.h"

namespace cube::shim {

class KeptFile {
 public:
  explicit KeptFile(int fd) {
    base::Held::give_back_left(this);
    file_ = g_fds.acquire_kind(fd, RowKind::large);
    if (file_ && process::g_may_close_unseen.load(std::memory_order_relaxed) && !is_file_of(fd))
      file_.reset();
    is_noted_ = file_ &&
                base::Held::note(this, give_back, reinterpret_cast<std::uintptr_t>(file_.get()), 0);
  }
  KeptFile(const KeptFile&) = delete;
  KeptFile& operator=(const KeptFile&) = delete;
  ~KeptFile() {
    if (is_noted_ && !base::Held::let_go(this, reinterpret_cast<std::uintptr_t>(file_.get())))
      file_.release();
  }
  explicit operator bool() const { return static_cast<bool>(file_); }
  OpenFile* operator->() const { return file_.get(); }
  OpenFile& operator*() const { return *file_; }

 private:
  static void give_back(std::uintptr_t file, std::size_t) {
    OpenFileRef::adopt(reinterpret_cast<OpenFile*>(file)).reset();
  }

  // Asks the kernel, never the file server.
  bool is_file_of(int fd) const {
    const auto now = cache::stat_fd(fd, AT_STATX_DONT_SYNC);
    return now && now->same_file(file_->large->stat());
  }

  OpenFileRef file_;
  bool is_noted_ = false;
};

}  // namespace cube::shim
