// The base class for a row of a table that threads fill and empty without a lock. A thread that has
// claimed a row owns its plain fields until it puts the row back. Thread-safe and
// async-signal-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace cube::prefetch {

class ClaimedRow {
 public:
  enum class Is : std::uint32_t { free, claimed, filled };
  Is state() const { return state_.load(std::memory_order_acquire); }
  bool claim(Is from) {
    return state_.compare_exchange_strong(from, Is::claimed, std::memory_order_seq_cst);
  }
  // Pairs with claim(): the next owner sees all that this owner has written.
  void put_back(Is to) { state_.store(to, std::memory_order_seq_cst); }

 private:
  std::atomic<Is> state_{Is::free};
};

// Claims any row of the table that is in this state. Returns null if there is none.
template <typename Row, std::size_t n>
Row* claim_any(Row (&rows)[n], ClaimedRow::Is from) {
  for (Row& row : rows) {
    if (row.claim(from)) return &row;
  }
  return nullptr;
}

}  // namespace cube::prefetch
