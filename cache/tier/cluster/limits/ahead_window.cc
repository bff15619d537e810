#include "cache/tier/cluster/limits/ahead_window.h"

#include <algorithm>
#include <mutex>

namespace cube::cache {

void AheadWindow::hold() {
  std::unique_lock lock(mutex_);
  is_let_go_.wait_until(lock, [this] { return held_ < k_most_held; });
  ++held_;
}

void AheadWindow::let_go() {
  const std::lock_guard lock(mutex_);
  --held_;
  is_let_go_.notify_one();
}

void AheadWindow::enter() {
  std::unique_lock lock(mutex_);
  has_left_.wait_until(lock, [this] { return inside_ < width(); });
  ++inside_;
}

void AheadWindow::leave(std::uint64_t bytes) {
  constexpr std::uint64_t k_a_server = 1 << 20, k_fewest = 4, k_most = 24;
  const std::lock_guard lock(mutex_);
  --inside_;
  if (bytes != 0)
    average_ += (static_cast<std::int64_t>(bytes) - static_cast<std::int64_t>(average_)) / 16;
  const std::uint64_t fit = servers_ * k_a_server / std::max<std::uint64_t>(average_, 1);
  const auto width = static_cast<unsigned>(std::clamp(fit, k_fewest, k_most));
  if (width_.exchange(width, std::memory_order_relaxed) < width) {
    has_left_.notify();
  } else {
    has_left_.notify_one();
  }
}

}  // namespace cube::cache
