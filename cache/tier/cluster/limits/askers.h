// Remembers how many threads have recently waited for answers at the same time. While as many
// threads wait now, another request is unlikely. Thread safety: one thread.
#pragma once

#include <algorithm>
#include <utility>

namespace cube::cache {

class Askers {
 public:
  void note(unsigned awaited) {
    awaited_ = awaited;
    most_ = std::max(most_, awaited);
    if (++looks_ % k_looks != 0) return;
    most_before_ = std::exchange(most_, awaited);
  }
  bool are_all_waiting() const {
    return awaited_ != 0 && awaited_ >= std::max(most_, most_before_);
  }

 private:
  static constexpr unsigned k_looks = 1024;
  unsigned awaited_ = 0, most_ = 0, most_before_ = 0, looks_ = 0;
};

}  // namespace cube::cache
