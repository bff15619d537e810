// The account of a source whose fetches may cost only a limited number of bytes. promise() reserves
// the likely size of a file when its fetch is planned. settle() replaces the promise by the actual
// cost when the fetch has ended. A request that returned nothing costs the promised bytes, so the
// number of requests is bounded as well. Thread safety: promise() and take_spent() by the source's
// thread, settle() by any thread, once for each promise.
#pragma once

#include <atomic>
#include <cstdint>

namespace cube::prefetch {

class Allowance {
 public:
  void promise(std::uint64_t bytes) { promised_.fetch_add(bytes, std::memory_order_relaxed); }
  void settle(std::uint64_t promised, std::uint64_t bytes, bool was_asked) {
    spent_.fetch_add(was_asked && bytes == 0 ? promised : bytes, std::memory_order_relaxed);
    // Release, paired with the acquire in promised(): a thread that no longer sees the promise sees
    // the spent bytes.
    promised_.fetch_sub(promised, std::memory_order_release);
  }
  std::uint64_t promised() const { return promised_.load(std::memory_order_acquire); }
  // Returns the number of whole units spent since the last call. The remainder below `unit` stays
  // in the account.
  std::uint64_t take_spent(std::uint64_t unit) {
    const std::uint64_t units = spent_.load(std::memory_order_relaxed) / unit;
    spent_.fetch_sub(units * unit, std::memory_order_relaxed);
    return units;
  }

 private:
  std::atomic<std::uint64_t> promised_{0}, spent_{0};
};

}  // namespace cube::prefetch
