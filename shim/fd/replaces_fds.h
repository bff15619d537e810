// The right to replace the fds of a served file. Thread-safe. Make the object with signals blocked.
#pragma once

#include <sched.h>

#include "shim/fd/open_file.h"
#include "shim/process/process.h"

namespace cube::shim {

// Only one thread at a time may replace the fds of a file. A second thread would skip the rows that
// the first has made BUSY, and open another file with an offset of its own. In a forked child,
// FdTable::end_busy_rows empties such rows, because the parent's threads do not exist there.
class ReplacesFds {
 public:
  explicit ReplacesFds(OpenFile& file) : file_(file) {
    while (file_.is_replacing.exchange(true, std::memory_order_acquire)) {
      process::owns_table();  // ends the wait in a child of an unnoticed fork
      sched_yield();
    }
  }
  ~ReplacesFds() { file_.is_replacing.store(false, std::memory_order_release); }
  ReplacesFds(const ReplacesFds&) = delete;
  ReplacesFds& operator=(const ReplacesFds&) = delete;

 private:
  OpenFile& file_;
};

}  // namespace cube::shim
