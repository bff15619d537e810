// Faults of single operations. A test sets them while the mount runs, by writing lines to
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
  // Returns false at the first line that it does not understand; the lines before this line take
  // effect.
  bool write(std::string_view lines);
  // Applies the rules to an operation: waits while the operation is held, and returns 0 or an
  // errno. While waiting, calls `gave_up`.
  int meet(Op op, const std::function<bool()>& gave_up);
  // Changes the attributes that a reply shows.
  void lie(struct stat& st);
  // Waits for the first held operation, or for `go` or `clear`. Returns how many operations are
  // held now.
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
  // True if there are rules. On a mount without rules, each operation costs only one load.
  std::atomic<bool> active_{false};
  std::atomic<std::int64_t> size_delta_{0}, seconds_delta_{0};
  std::atomic<std::uint64_t> next_inode_{0};  // 0: the true inode
};

}  // namespace cube::lagfs
