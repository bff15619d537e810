#include "cache/base/lane.h"

#include <algorithm>

namespace cube::base {

constinit thread_local std::uint32_t t_lane [[gnu::tls_model("initial-exec")]] = 0;

namespace {
constinit std::atomic<std::uint32_t> g_chosen{0};
}  // namespace

// A signal handler that interrupts this function can choose another lane. Both lanes are valid.
[[gnu::noinline, gnu::cold]] std::uint32_t choose_lane() {
  const std::uint32_t lane = g_chosen.fetch_add(1, std::memory_order_seq_cst) % k_lanes;
  t_lane = lane + 1;
  return lane;
}

std::uint32_t lanes_reached() {
  return std::min(g_chosen.load(std::memory_order_seq_cst), k_lanes);
}

}  // namespace cube::base
