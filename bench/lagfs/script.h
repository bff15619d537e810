// Faults that a test sets while the mount runs, one operation at a time: it writes lines to
// .lagfs/script.
//
//   fail OP ERRNO [N [COUNT]]   the N-th operation of this kind from now on fails, and so do the
//                               next ones, COUNT in all
//   hold OP [N [COUNT]]         these operations stay until `go`; .lagfs/held tells when the first
//                               one has come
//   go                          held operations continue
//   lie size|times DELTA        replies show regular files with DELTA more bytes, or with times
//                               DELTA seconds later
//   lie inode                   every reply shows another inode number
//   clear                       removes all rules and lies, and lets held operations continue
//
// Thread safety: all members may be called from any thread.
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string_view>
#include <vector>

#include "ops.h"

namespace cube::lagfs {

class Script {
 public:
  // Returns false at a line that it does not understand; the lines before it take effect.
  bool write(std::string_view lines);
  // Decides about this operation: waits while it is held, and returns 0 or an errno. Calls
  // `gave_up` while it waits.
  int meet(Op op, const std::function<bool()>& gave_up);
  // Changes the attributes that a reply shows.
  void lie(struct stat& st);
  // Returns how many operations are held now, after waiting for the first one, or for `go` or
  // `clear`.
  unsigned wait_for_held(const std::function<bool()>& gave_up);

 private:
  struct Rule {
    Op op;
    int error;  // 0: hold
    std::uint64_t skip, count;
  };
  bool obey(std::string_view line);  // under mutex_
  void let_go();                     // under mutex_

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Rule> rules_;     // guarded by mutex_, like the next three
  std::uint64_t released_ = 0;  // the number of `go` lines so far
  unsigned held_ = 0;
  bool expects_ = false;  // a hold was set, and no `go` or `clear` has followed
  // whether there are rules, so that a mount without any pays only one load
  std::atomic<bool> active_{false};
  std::atomic<std::int64_t> size_delta_{0}, seconds_delta_{0};
  std::atomic<std::uint64_t> next_inode_{0};  // 0: the true inode
};

}  // namespace cube::lagfs
