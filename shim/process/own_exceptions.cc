// The functions that the C++ runtime calls to throw an exception, for this library only (the
// version script hides them). The functions use the library's own heap and libc's list of loaded
// libraries, even if a preloaded library interposes malloc or dl_iterate_phdr. The library's
// threads throw when memory is exhausted, and must not run code of the program. Thread-safe.
#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <cstring>
#include <exception>
#include <new>

#include "shim/process/real_libc.h"

// A release is built with libc++abi, which has the two memory functions in the same object file as
// the rest of its exception code. A second definition would not link. So in a release, exceptions
// use the program's malloc.
#ifndef _LIBCPP_VERSION
#define CUBE_OWN_EXCEPTION_MEMORY
#endif

namespace {

#ifdef CUBE_OWN_EXCEPTION_MEMORY
// The runtimes of gcc and clang expect a zeroed header before the exception.
constexpr std::size_t k_header = 128;

// Reserved room for exceptions that report a lack of memory. Nearly all exceptions need only a few
// bytes.
struct Reserve {
  std::atomic<bool> is_taken{false};
  alignas(16) std::byte room[512];
};
constinit Reserve g_reserve[16] = {};

void* take_reserve(std::size_t size) {
  for (Reserve& reserve : g_reserve) {
    if (size <= sizeof reserve.room && !reserve.is_taken.exchange(true, std::memory_order_acquire))
      return reserve.room;
  }
  std::terminate();
}

#endif

using Iterate = int (*)(int (*)(dl_phdr_info*, std::size_t, void*), void*);
constinit std::atomic<Iterate> g_iterate{nullptr};

// Runs before our other constructors, one of which walks a stack. Looks up the function by libc's
// symbol version, because the same function of another preloaded library does not have this
// version.
__attribute__((constructor(101))) void find_iterate() {
  void* const found = dlvsym(RTLD_NEXT, "dl_iterate_phdr", cube::shim::real::k_first_libc_version);
  g_iterate.store(reinterpret_cast<Iterate>(found), std::memory_order_relaxed);
}

}  // namespace

// NOLINTBEGIN(bugprone-reserved-identifier)
extern "C" {

#ifdef CUBE_OWN_EXCEPTION_MEMORY
void* __cxa_allocate_exception(std::size_t size) noexcept {
  const std::size_t whole = size + k_header;
  void* at = operator new(whole, std::nothrow);
  if (at == nullptr) at = take_reserve(whole);
  std::memset(at, 0, k_header);
  return static_cast<std::byte*>(at) + k_header;
}

void __cxa_free_exception(void* exception) noexcept {
  std::byte* const at = static_cast<std::byte*>(exception) - k_header;
  for (Reserve& reserve : g_reserve) {
    if (at == reserve.room) return reserve.is_taken.store(false, std::memory_order_release);
  }
  operator delete(at);
}

#endif

int dl_iterate_phdr(int (*callback)(dl_phdr_info*, std::size_t, void*), void* data) {
  // Before our constructor has run, the constructor of another library may call this library, which
  // may throw.
  if (g_iterate.load(std::memory_order_relaxed) == nullptr) find_iterate();
  const Iterate iterate = g_iterate.load(std::memory_order_relaxed);
  return iterate != nullptr ? iterate(callback, data) : 0;
}
}
// NOLINTEND(bugprone-reserved-identifier)
