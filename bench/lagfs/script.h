// Misbehaviour that is set while the mount runs, one operation at a time: a test writes lines to
// .lagfs/script.
//
//   fail OP ERRNO [N [COUNT]]   the N-th operation of this kind from now on fails, and those after
//   it up to COUNT hold OP [N [COUNT]]         it stays until `go`; .lagfs/held tells when it has
//   come go                          what is held goes on lie size|times DELTA        regular files
//   are shown with that many bytes, or seconds, more than they have lie inode every reply shows
//   another inode number clear                       no rules and no lies, and what is held goes on
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
  // False: a line that is not understood; those before it hold.
  bool write(std::string_view lines);
  // The fate of this operation: waits while it is held, then 0 or an errno. `gave_up` is asked
  // while it waits.
  int meet(Op op, const std::function<bool()>& gave_up);
  // Changes what a reply says of a file.
  void lie(struct stat& st);
  // How many are held now; waits for the first, or for `go` or `clear`.
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
  std::vector<Rule> rules_;     // guarded by mutex_, as the next three
  std::uint64_t released_ = 0;  // `go`s so far
  unsigned held_ = 0;
  bool expects_ = false;             // a hold was set, and no `go` or `clear` has come
  std::atomic<bool> active_{false};  // are there rules? So that a mount without pays one load
  std::atomic<std::int64_t> size_delta_{0}, seconds_delta_{0};
  std::atomic<std::uint64_t> next_inode_{0};  // 0: the true one
};

}  // namespace cube::lagfs
