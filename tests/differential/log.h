// The lines that a run has logged. They are in memory that the driver, the worker and its forked
// children share, so they survive a crash. Thread safety: one writer at a time (the player's
// processes alternate).
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstring>
#include <string_view>

namespace cube::differ {

class Log {
 public:
  static constexpr std::size_t k_capacity = 4 << 20;

  explicit Log(int memfd)
      : shared_(static_cast<Shared*>(
            mmap(nullptr, k_capacity, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0))) {}

  void clear() { shared_->length = 0; }
  void line(std::string_view text) {
    if (shared_->length + text.size() + 1 > sizeof shared_->text) return;
    std::memcpy(shared_->text + shared_->length, text.data(), text.size());
    shared_->length += text.size();
    shared_->text[shared_->length++] = '\n';
  }
  std::string_view text() const { return {shared_->text, shared_->length}; }

 private:
  struct Shared {
    std::size_t length;
    char text[k_capacity - sizeof(std::size_t)];
  };
  Shared* shared_;
};

}  // namespace cube::differ
