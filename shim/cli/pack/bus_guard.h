// Looks at mapped files that somebody may cut short meanwhile: a page that is gone reads as zeros,
// and the guard tells of it. Without a guard such a look ends the program (SIGBUS). Thread safety:
// install() once, at the start; a guard is its thread's own, and a thread has one at a time.
#pragma once

namespace cube::cli {

class BusGuard {
 public:
  // The handler, for the whole process.
  static void install();

  BusGuard();
  ~BusGuard();
  BusGuard(const BusGuard&) = delete;
  BusGuard& operator=(const BusGuard&) = delete;

  // Was there a page that is gone?
  bool has_missed() const;
};

}  // namespace cube::cli
