#include "cache/base/memory/off_stack.h"

#include <atomic>
#include <bit>
#include <cstdint>

#include "cache/base/memory/held.h"
#include "cache/base/memory/own_place.h"
#include "cache/base/sys.h"

namespace cube::base {
namespace {

constexpr std::size_t k_pieces = 64;
alignas(64) constinit char g_pieces[k_pieces][OffStack::k_bytes]{};
// Each bit is set while its piece is taken. Acquire and release put the stores of the previous
// owner of a piece before the stores of the next owner.
constinit std::atomic<std::uint64_t> g_taken{0};

char* take_piece() {
  std::uint64_t taken = g_taken.load(std::memory_order_relaxed);
  while (taken != UINT64_MAX) {
    const std::uint64_t lowest_free = ~taken & (taken + 1);
    if (g_taken.compare_exchange_weak(taken, taken | lowest_free, std::memory_order_acquire))
      return g_pieces[std::countr_zero(lowest_free)];
  }
  const long at = sys::mmap(own_place(OffStack::k_bytes), OffStack::k_bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return sys::failed(at) ? nullptr : reinterpret_cast<char*>(at);
}

void give_back_piece(std::uintptr_t piece, std::size_t size) {
  const std::uintptr_t offset = piece - reinterpret_cast<std::uintptr_t>(g_pieces);
  if (offset < sizeof g_pieces) {
    g_taken.fetch_and(~(std::uint64_t{1} << (offset / OffStack::k_bytes)),
                      std::memory_order_release);
  } else {
    sys::munmap(reinterpret_cast<void*>(piece), size);
  }
}

}  // namespace

OffStack::OffStack() {
  Held::give_back_left(this);
  data_ = take_piece();
  if (data_ != nullptr)
    is_noted_ = Held::note(this, give_back_piece, reinterpret_cast<std::uintptr_t>(data_), k_bytes);
}

OffStack::~OffStack() {
  const auto piece = reinterpret_cast<std::uintptr_t>(data_);
  if (data_ == nullptr || (is_noted_ && !Held::let_go(this, piece))) return;
  give_back_piece(piece, k_bytes);
}

}  // namespace cube::base
