// The engine of io_uring: one thread that submits and reaps; the kernel's own workers wait for the
// origin. At most `depth` fetches are in flight, each with one operation at a time. A ring whose
// operations hang outlives the engine, silent, with its thread, and ends when the kernel lets them
// go.
#pragma once

#include <memory>
#include <string>

#include "prefetch/engine/io_engine.h"

namespace cube::prefetch {

// Null: refused here (an old kernel, seccomp, kernel.io_uring_disabled), and `why` says so.
std::unique_ptr<IoEngine> make_uring_engine(const EngineOptions& options, FetchClient& client,
                                            std::string& why);

}  // namespace cube::prefetch
