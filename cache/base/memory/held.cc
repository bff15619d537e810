#include "cache/base/memory/held.h"

#include <atomic>

#include "cache/base/process/signal_frame.h"

namespace cube::base {
namespace {

// A signal handler can use free rows of this thread while the interrupted code fills a row. If the
// handler returns, it has freed all rows that it used.
struct HeldRow {
  std::atomic<const void*> holder{nullptr};
  std::atomic<Held::GiveBack> give_back{nullptr};  // null: not filled yet
  std::uintptr_t what = 0;
  std::size_t size = 0;
};
constexpr std::size_t k_held_rows = 12;
constinit thread_local HeldRow t_held [[gnu::tls_model("initial-exec")]][k_held_rows];

void clear_row(HeldRow& row) {
  row.give_back.store(nullptr, std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  row.holder.store(nullptr, std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  --t_held_count;
}

void give_back_row(HeldRow& row) {
  const Held::GiveBack give_back = row.give_back.load(std::memory_order_relaxed);
  const std::uintptr_t what = row.what;
  const std::size_t size = row.size;
  clear_row(row);
  if (give_back != nullptr) give_back(what, size);
}

}  // namespace

constinit thread_local std::size_t t_held_count [[gnu::tls_model("initial-exec")]] = 0;

// Not inlined, so that its frame lies below all living objects on this stack.
[[gnu::noinline]] void Held::give_back_left_slow(const void* holder) {
  const void* const frame = __builtin_frame_address(0);
  bool is_known = false;
  for (HeldRow& row : t_held) {
    const void* const other = row.holder.load(std::memory_order_relaxed);
    if (other == nullptr || (other != holder && other >= frame)) continue;
    if (other != holder && !is_known) {
      // A handler may be running on another stack. The object can then still exist on the thread's
      // own stack.
      if (may_be_in_handler()) return;
      is_known = true;
    }
    give_back_row(row);
  }
}

[[gnu::noinline]] bool Held::note(const void* holder, GiveBack give_back, std::uintptr_t what,
                                  std::size_t size) {
  constexpr std::uintptr_t k_near = 64 << 10;
  if (reinterpret_cast<std::uintptr_t>(holder) -
          reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)) >=
      k_near)
    return false;
  for (HeldRow& row : t_held) {
    if (row.holder.load(std::memory_order_relaxed) != nullptr) continue;
    ++t_held_count;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    row.holder.store(holder, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    row.what = what;
    row.size = size;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    row.give_back.store(give_back, std::memory_order_relaxed);
    return true;
  }
  return false;
}

bool Held::let_go(const void* holder, std::uintptr_t what) {
  for (HeldRow& row : t_held) {
    if (row.holder.load(std::memory_order_relaxed) != holder || row.what != what) continue;
    clear_row(row);
    return true;
  }
  return false;
}

}  // namespace cube::base
