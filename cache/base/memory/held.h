// Tracks resources (pieces of memory, fds) that objects on this thread's stack hold. A signal
// handler can leave a call by siglongjmp, and then no destructor runs. The thread's next tracked
// object therefore searches the rows for objects that no longer exist, and frees their resources.
// An object no longer exists if a new object lies at its address, or if it lies below the stack
// pointer while no handler runs. Thread safety: each thread has its own rows. Async-signal-safe.
// Invariants: a row belongs to at most one object. An object that is not on its caller's stack has
// no row. Known limit: a jump in the few instructions between taking and noting a resource still
// leaks the resource.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cube::base {

// At least the number of rows in use. If a jump interrupts the taking of a row, the count stays too
// high, which costs only time.
extern constinit thread_local std::size_t t_held_count [[gnu::tls_model("initial-exec")]];

class Held {
 public:
  // Frees the resource that the two words of a row describe.
  using GiveBack = void (*)(std::uintptr_t what, std::size_t size);

  // Frees resources that a jump has left behind. A new object on the stack calls it before it takes
  // its own resource.
  static void give_back_left(const void* holder) {
    if (t_held_count != 0) [[unlikely]]
      give_back_left_slow(holder);
  }
  // False: there is no row, and a jump leaks the resource.
  static bool note(const void* holder, GiveBack give_back, std::uintptr_t what, std::size_t size);
  // Called when the holder frees the resource itself. False: the resource was already freed,
  // because the holder was mistaken for an object that no longer exists.
  static bool let_go(const void* holder, std::uintptr_t what);

 private:
  static void give_back_left_slow(const void* holder);
};

}  // namespace cube::base
