// Tracks the resources (pieces of memory, fds) that objects on this thread's stack hold. Each
// object has a row in a table of the thread. If a signal handler leaves a call by siglongjmp, no
// destructor runs. Therefore the thread's next tracked object searches the table for objects that
// no longer exist, and frees their resources. An object no longer exists if a new object has the
// same address. It also no longer exists if its address is below the stack pointer while no handler
// runs. Thread safety: each thread has its own table. Async-signal-safe. Invariants: a row belongs
// to at most one object. An object that is not on the stack of its caller has no row. Known limit:
// a jump in the few instructions between taking and noting a resource still leaks the resource.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cube::base {

// The number of rows in use. If a jump interrupts a change of the table, the count stays too high,
// which only costs time.
extern constinit thread_local std::size_t t_held_count [[gnu::tls_model("initial-exec")]];

class Held {
 public:
  // Frees the resource that the two words of a row describe.
  using GiveBack = void (*)(std::uintptr_t what, std::size_t size);

  // Frees the resources that a jump has left behind. A new object calls this before it takes its
  // own resource.
  static void give_back_left(const void* holder) {
    if (t_held_count != 0) [[unlikely]]
      give_back_left_slow(holder);
  }
  // Notes the holder's resource in a row. False: the holder gets no row, so a jump would leak the
  // resource.
  static bool note(const void* holder, GiveBack give_back, std::uintptr_t what, std::size_t size);
  // The holder calls this before it frees its resource. False: the resource is already free,
  // because the holder was mistaken for an object that no longer exists.
  static bool let_go(const void* holder, std::uintptr_t what);

 private:
  static void give_back_left_slow(const void* holder);
};

}  // namespace cube::base
