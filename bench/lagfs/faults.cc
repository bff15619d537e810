#include "faults.h"

#include <cerrno>
#include <cstring>

namespace cube::lagfs {
namespace {

// splitmix64: every bit of the result depends on every bit of the input.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

}  // namespace

std::optional<int> find_errno(std::string_view name) {
  if (name == "EWOULDBLOCK") return EWOULDBLOCK;
  if (name == "ENOTSUP") return ENOTSUP;
  constexpr int k_last_errno = 133;  // EHWPOISON
  for (int number = 1; number <= k_last_errno; ++number) {
    const char* known = strerrorname_np(number);
    if (known != nullptr && name == known) return number;
  }
  return std::nullopt;
}

Faults::Faults(const std::vector<FailRule>& fails, const std::vector<HangRule>& hangs,
               double short_read, std::uint64_t seed)
    : short_read_(mix(seed), short_read) {
  // Each rule has its own stream, so that an additional hang rule does not change the decisions of
  // fail rules.
  std::uint64_t stream = 1;
  for (const FailRule& rule : fails) fails_.emplace_back(rule, mix(seed + (stream++ << 32)));
  stream = 1U << 16;
  for (const HangRule& rule : hangs) hangs_.emplace_back(rule, mix(seed + (stream++ << 32)));
}

std::optional<std::uint64_t> Faults::Dice::roll() {
  if (probability <= 0) return std::nullopt;
  // Relaxed: only the uniqueness of the number matters.
  const std::uint64_t bits = mix(seed + draws.fetch_add(1, std::memory_order_relaxed));
  const double point = static_cast<double>(bits >> 11) * 0x1p-53;  // [0, 1)
  if (point >= probability) return std::nullopt;
  return mix(bits);
}

int Faults::error_for(Op op) {
  for (auto& armed : fails_) {
    if (armed.rule.op == op && armed.dice.roll()) return armed.rule.error;
  }
  return 0;
}

double Faults::hang_for(Op op) {
  double seconds = 0;
  for (auto& armed : hangs_) {
    if (armed.rule.op == op && armed.dice.roll()) seconds += armed.rule.seconds;
  }
  return seconds;
}

std::size_t Faults::shorten(std::size_t bytes) {
  if (bytes < 2) return bytes;
  const auto bits = short_read_.roll();
  return bits ? 1 + *bits % (bytes - 1) : bytes;
}

}  // namespace cube::lagfs
