// Tells whether a processor is idle: a thread of low priority answers as soon as it gets one. Work
// that can wait therefore takes no processor from the program. If no such thread can be started, or
// after a while, the gate opens anyway. Thread safety: the client's thread alone.
#pragma once

#include <cstdint>

#include "cache/tier/cluster/wakeup.h"

namespace cube::cache {

class IdleGate {
 public:
  explicit IdleGate(Wakeup& client) : client_(client) {}
  ~IdleGate();
  IdleGate(const IdleGate&) = delete;
  IdleGate& operator=(const IdleGate&) = delete;

  // Asks again: the gate is shut until the answer arrives, which wakes the client's thread.
  void shut(std::uint64_t now_ns);
  bool is_open(std::uint64_t now_ns);
  // The latest time at which the gate opens.
  std::uint64_t opens_ns() const { return opens_ns_; }

 private:
  class Desk;
  Wakeup& client_;
  Desk* desk_ = nullptr;  // null: there is no thread
  std::uint64_t opens_ns_ = 0, next_start_ns_ = 0;
};

}  // namespace cube::cache
