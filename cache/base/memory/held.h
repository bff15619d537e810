// The resources that objects on this thread's stack hold: pieces of memory, fds. A handler may
// leave a call by siglongjmp, and then no destructor runs. The thread's next object finds the rows
// of objects that are gone, and gives back what they held. An object is gone if a new one lies at
// its address, or if it lies below the stack pointer and no handler runs. Invariants: a row belongs
// to one object at most. An object that is not on the stack of its caller gets no row. A jump in
// the few instructions between taking a resource and noting it still loses that resource. Thread
// safety: each thread has its own rows. Async-signal-safe.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cube::base {

// The rows in use, or more: a jump while a row is taken is counted for good, and costs only time.
extern constinit thread_local std::size_t t_held_count [[gnu::tls_model("initial-exec")]];

class Held {
 public:
  // The use of a row's two words.
  using GiveBack = void (*)(std::uintptr_t what, std::size_t size);

  // Gives back what was left by a jump. A new object on the stack calls it before it takes its own.
  static void give_back_left(const void* holder) {
    if (t_held_count != 0) [[unlikely]]
      give_back_left_slow(holder);
  }
  // False: there is no row for it, and nothing is given back after a jump.
  static bool note(const void* holder, GiveBack give_back, std::uintptr_t what, std::size_t size);
  // The holder gives it back itself. False: that has been done (the holder was taken for gone).
  static bool let_go(const void* holder, std::uintptr_t what);

 private:
  static void give_back_left_slow(const void* holder);
};

}  // namespace cube::base
