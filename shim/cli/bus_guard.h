// Guards reads of mapped files that may be truncated during the read: a missing page reads as
// zeros, and the guard reports it. Without a guard such a read ends the program (SIGBUS). Thread
// safety: install() once, at the start; a guard belongs to its thread, and a thread has one at a
// time.
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
