// A gate that opens when a processor is idle, so that work that can wait takes no processor time
// from the program. A helper thread of low priority answers as soon as it gets a processor. The
// gate also opens if the thread has not answered for a while, or cannot be started. Thread safety:
// only the client's thread uses it.
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

  // Shuts the gate, and asks the helper thread. The helper's answer opens the gate, and wakes the
  // client's thread.
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
