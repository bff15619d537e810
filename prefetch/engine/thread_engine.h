// The engine of plain system calls: one thread for each fetch in flight, at most `depth` of them. A
// keeper thread owns the fd table that all these threads share, and starts a thread when one is
// needed. Idle threads end. A thread that hangs in the kernel outlives the engine, makes no
// callbacks, and ends when the kernel releases it.
#pragma once

#include <memory>
#include <string>

#include "prefetch/engine/io_engine.h"

namespace cube::prefetch {

// Returns null if threads are not available here; `why` is then the reason.
std::unique_ptr<IoEngine> make_thread_engine(const EngineOptions& options, FetchClient& client,
                                             std::string& why);

}  // namespace cube::prefetch
