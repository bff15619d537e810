#include "cache/base/aside.h"

#include <atomic>
#include <bit>
#include <cstdint>

#include "cache/base/sys.h"

namespace cube::base {
namespace {

constexpr std::size_t k_pieces = 64;
alignas(64) constinit char g_pieces[k_pieces][Aside::k_bytes]{};
// A bit for each that is taken. Acquire and release: the last owner's stores come before the next one's.
constinit std::atomic<std::uint64_t> g_taken{0};

}  // namespace

Aside::Aside() {
  std::uint64_t taken = g_taken.load(std::memory_order_relaxed);
  while (taken != UINT64_MAX) {
    const std::uint64_t lowest_free = ~taken & (taken + 1);
    if (!g_taken.compare_exchange_weak(taken, taken | lowest_free, std::memory_order_acquire)) continue;
    data_ = g_pieces[std::countr_zero(lowest_free)];
    return;
  }
  const long at = sys::mmap(nullptr, k_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (!sys::failed(at)) data_ = reinterpret_cast<char*>(at);
}

Aside::~Aside() {
  if (data_ == nullptr) return;
  const auto offset = reinterpret_cast<std::uintptr_t>(data_) - reinterpret_cast<std::uintptr_t>(g_pieces);
  if (offset < sizeof g_pieces) {
    g_taken.fetch_and(~(std::uint64_t{1} << (offset / k_bytes)), std::memory_order_release);
  } else {
    sys::munmap(data_, k_bytes);
  }
}

}  // namespace cube::base
