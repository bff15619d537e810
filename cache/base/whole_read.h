// Reads a whole file of known size. Each read also asks for the byte after the expected end of the
// file. If the kernel returns this byte, the file has grown, or the known size was wrong. Thread
// safety: plain values.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

namespace cube::base {

enum class ReadState : std::uint8_t { more, whole, changed };

class WholeRead {
 public:
  WholeRead() = default;
  // `to` has room for `size` bytes. Neither the room nor this object may move while a read is under
  // way.
  WholeRead(std::byte* to, std::uint64_t size) : to_(to), size_(size) {}

  // The arguments of preadv for the next read, at position got().
  const struct ::iovec* aim() {
    parts_[0] = {to_ + got_, size_ - got_};
    parts_[1] = {&beyond_, 1};
    return parts_;
  }
  static constexpr int k_parts = 2;
  std::uint64_t got() const { return got_; }
  // The state after a read that returned `n` bytes. `n` must not be an error.
  ReadState after(long n) {
    got_ += static_cast<std::uint64_t>(n);
    if (got_ == size_) return ReadState::whole;
    return got_ > size_ || n == 0 ? ReadState::changed : ReadState::more;
  }

 private:
  std::byte* to_ = nullptr;
  std::uint64_t size_ = 0, got_ = 0;
  struct ::iovec parts_[k_parts]{};
  std::byte beyond_{};
};

}  // namespace cube::base
