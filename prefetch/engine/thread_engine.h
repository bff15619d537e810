// The engine of plain system calls: a thread for each fetch in flight, at most `depth` of them. A
// keeper thread owns the fd table that all of them share and starts them as they are needed; those
// with nothing to do end. A thread that hangs in the kernel outlives the engine, silent, and ends
// when the kernel lets it go.
#pragma once

#include <memory>
#include <string>

#include "prefetch/engine/io_engine.h"

namespace cube::prefetch {

// Null: not to be had here, and `why` says so.
std::unique_ptr<IoEngine> make_thread_engine(const EngineOptions& options, FetchClient& client,
                                             std::string& why);

}  // namespace cube::prefetch
