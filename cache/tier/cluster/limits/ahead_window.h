// Limits how many records may be fetched ahead at the same time: as many as make up 1 MiB for each
// server, estimated from the sizes of recent answers. A larger number would only delay records that
// a program waits for. Also limits how many answers may wait for room in the region. Each such
// answer occupies a request row of the client, and programs need some of the rows, too.
// Thread-safe. Functions of this class wait, so only threads of the library may call them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "cache/base/condition.h"

namespace cube::cache {

class AheadWindow {
 public:
  static constexpr unsigned k_most_held = 24;

  explicit AheadWindow(std::size_t servers) : servers_(servers) {}
  // Waits until one more answer may occupy a row. let_go() ends this.
  void hold();
  void let_go();
  // Waits until one more record may be fetched.
  void enter();
  // Called after the fetch. `bytes` is the size of the answer; 0: there was no answer.
  void leave(std::uint64_t bytes);
  unsigned width() const { return width_.load(std::memory_order_relaxed); }

 private:
  const std::size_t servers_;
  base::Mutex mutex_;  // guards the next three members
  unsigned inside_ = 0, held_ = 0;
  std::uint64_t average_ = 128 << 10;  // bytes
  base::Condition has_left_, is_let_go_;
  std::atomic<unsigned> width_{8};
};

}  // namespace cube::cache
