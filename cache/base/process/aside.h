// Room for a path or a record's head that is not on the stack: a thread may have 16 KB of that, and
// a signal handler 8 KB. A piece of static memory; when all are taken, memory of the kernel's. Its
// bytes are not initialised. Thread safety: an object belongs to one thread. Async-signal-safe. A
// piece that is left by a jump is given back (held.h).
#pragma once

#include <cstddef>
#include <new>
#include <type_traits>

namespace cube::base {

class Aside {
 public:
  static constexpr std::size_t k_bytes = 8192;

  Aside();
  ~Aside();
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;

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

// use(object), where the object lies aside: on the stack only if there is no memory. It is not
// initialised.
template <typename T, typename Use>
auto use_aside(Use&& use) {
  static_assert(sizeof(T) <= Aside::k_bytes && std::is_trivially_destructible_v<T>);
  Aside room;
  return room ? use(*new (room.data()) T) : use_on_stack<T>(use);
}

}  // namespace cube::base
