// Marks how a call of this thread was answered, unless memory alone answered it. Code sets the mark
// if, on behalf of a program's call, it asks the kernel, an origin or a tier, or waits for another
// fetch; a hit never sets it. The profiler (shim/profile) counts the time of a marked call as lost
// to the origin. Thread safety and async-signal safety: a thread's own. A handler may set the mark
// of the call that it interrupts.
#pragma once

#include <cstdint>

namespace cube::base {

// In ascending order: of several marks, a call keeps the highest.
enum class Way : std::uint8_t { memory, waited, origin, tier };

inline constinit thread_local Way t_way [[gnu::tls_model("initial-exec")]] = Way::memory;
inline void note_way_out(Way way = Way::origin) {
  if (way > t_way) t_way = way;
}

}  // namespace cube::base
