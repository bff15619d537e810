// The io_uring engine: one thread submits and reaps; the kernel's own workers wait for the origin.
// At most `depth` fetches are in flight, each with one operation at a time. A ring with hung
// operations outlives the engine together with its thread, makes no callbacks, and ends when the
// kernel releases the operations.
#pragma once

#include <memory>
#include <string>

#include "prefetch/engine/io_engine.h"

namespace cube::prefetch {

// Null: io_uring is refused here (old kernel, seccomp, kernel.io_uring_disabled); `why` is the
// reason.
std::unique_ptr<IoEngine> make_uring_engine(const EngineOptions& options, FetchClient& client,
                                            std::string& why);

}  // namespace cube::prefetch
