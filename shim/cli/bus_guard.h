// Guards reads of mapped files that may be truncated during the read. A missing page reads as
// zeros, and the guard reports this. Without a guard, such a read ends the program (SIGBUS). Thread
// safety: call install() once, at the start. A guard belongs to its thread, and a thread has at
// most one guard at a time.
#pragma once

namespace cube::cli {

class BusGuard {
 public:
  // Installs the handler for the whole process.
  static void install();

  BusGuard();
  ~BusGuard();
  BusGuard(const BusGuard&) = delete;
  BusGuard& operator=(const BusGuard&) = delete;

  // True if a page was missing.
  bool has_missed() const;
};

}  // namespace cube::cli
