// Tracks resources (pieces of memory, fds) that objects on this thread's stack hold, because a
// handler may leave a call by siglongjmp, and then no destructor runs. The thread's next such
// object finds the rows of objects that no longer exist and frees the resources that these held. An
// object no longer exists if a new one lies at its address, or if it lies below the stack pointer
// and no handler runs. Thread safety: each thread has its own rows. Async-signal-safe. Invariants:
// a row belongs to one object at most. An object that is not on the stack of its caller gets no
// row. Known limit: a jump in the few instructions between taking a resource and noting it still
// leaks that resource.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cube::base {

// The number of rows in use, or more: a jump while a row is being taken leaves the count too high
// permanently, which costs only time.
extern constinit thread_local std::size_t t_held_count [[gnu::tls_model("initial-exec")]];

class Held {
 public:
  // Frees the resource that a row's two words describe.
  using GiveBack = void (*)(std::uintptr_t what, std::size_t size);

  // Frees resources that a jump has left behind. A new object on the stack calls it before it takes
  // its own resource.
  static void give_back_left(const void* holder) {
    if (t_held_count != 0) [[unlikely]]
      give_back_left_slow(holder);
  }
  // False: there is no row, and a jump leaks the resource.
  static bool note(const void* holder, GiveBack give_back, std::uintptr_t what, std::size_t size);
  // Called when the holder frees the resource itself. False: the resource was freed already,
  // because the holder was taken for one that no longer exists.
  static bool let_go(const void* holder, std::uintptr_t what);

 private:
  static void give_back_left_slow(const void* holder);
};

}  // namespace cube::base
