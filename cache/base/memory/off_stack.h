// A buffer for a path or a record's head that is not on the stack. Some threads have a stack of
// only 16 KB, and some signal handlers a stack of only 8 KB. The buffer is a piece of static
// memory, or a mapping if all pieces are taken. Its bytes are not initialized. Thread safety: an
// object belongs to one thread. Async-signal-safe. A piece that a jump leaves behind is freed later
// (held.h).
#pragma once

#include <cstddef>
#include <new>
#include <type_traits>

namespace cube::base {

class OffStack {
 public:
  static constexpr std::size_t k_bytes = 8192;

  OffStack();
  ~OffStack();
  OffStack(const OffStack&) = delete;
  OffStack& operator=(const OffStack&) = delete;

  // False: there is no memory.
  explicit operator bool() const { return data_ != nullptr; }
  char* data() { return data_; }
  const char* data() const { return data_; }
  std::byte* bytes() { return reinterpret_cast<std::byte*>(data_); }

 private:
  char* data_ = nullptr;
  bool is_noted_ = false;
};

template <typename T, typename Use>
[[gnu::noinline]] auto use_on_stack(Use& use) {
  T object;
  return use(object);
}

// Calls use(object) with an uninitialized object that lies in an OffStack, or on the stack if there
// is no memory.
template <typename T, typename Use>
auto use_off_stack(Use&& use) {
  static_assert(sizeof(T) <= OffStack::k_bytes && std::is_trivially_destructible_v<T>);
  OffStack room;
  return room ? use(*new (room.data()) T) : use_on_stack<T>(use);
}

}  // namespace cube::base
