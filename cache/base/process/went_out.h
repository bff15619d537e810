// Marks each call of this thread that memory alone could not answer. The mark is set by code that,
// on behalf of a program's call, asks the kernel, an origin or a tier, or waits for another fetch.
// A hit never sets the mark. The profiler (shim/profile) counts the time of a marked call as lost
// to the origin. Thread safety and async-signal safety: each thread has its own mark. A signal
// handler can set the mark of the call that it interrupts.
#pragma once

#include <cstdint>

namespace cube::base {

// The ways are in ascending order. If a call is marked several times, it keeps the highest mark.
enum class Way : std::uint8_t { memory, waited, origin, tier };

inline constinit thread_local Way t_way [[gnu::tls_model("initial-exec")]] = Way::memory;
inline void note_way_out(Way way = Way::origin) {
  if (way > t_way) t_way = way;
}

}  // namespace cube::base
