#include "shim/fd/noted_opens.h"

#include <atomic>
#include <cstdint>
#include <cstring>

#include "cache/base/sys.h"

namespace cube::shim::noted_opens {

constinit thread_local bool t_is_noted [[gnu::tls_model("initial-exec")]] = false;

namespace {

// cubeshim.h describes the layout. The room takes no memory until it is used.
struct Room {
  std::uint32_t used;
  char text[(64 << 10) - sizeof(std::uint32_t)];
};
alignas(64) constinit Room g_room{};

// pid << 32 | tid of the thread that has the room. If the pid is not that of this process, it was
// stored before a fork.
constinit std::atomic<std::uint64_t> g_owner{0};

std::uint64_t this_thread() {
  const auto tid = static_cast<std::uint32_t>(base::sys::raw(SYS_gettid));
  return std::uint64_t{static_cast<std::uint32_t>(base::sys::getpid())} << 32 | tid;
}

}  // namespace

void* claim(std::size_t* size) {
  const std::uint64_t self = this_thread();
  std::uint64_t owner = g_owner.load(std::memory_order_relaxed);
  while (owner != self) {
    if (owner >> 32 == self >> 32) return nullptr;
    if (g_owner.compare_exchange_weak(owner, self, std::memory_order_relaxed)) break;
  }
  g_room.used = 0;
  t_is_noted = true;
  *size = sizeof g_room;
  return &g_room;
}

void note_slow(std::string_view path) {
  const std::uint32_t used = g_room.used;
  // The program also writes `used`, so check its value.
  if (used > sizeof g_room.text || path.size() + 1 > sizeof g_room.text - used) return;
  std::memcpy(g_room.text + used, path.data(), path.size());
  g_room.text[used + path.size()] = '\0';
  g_room.used = used + static_cast<std::uint32_t>(path.size()) + 1;
}

}  // namespace cube::shim::noted_opens
