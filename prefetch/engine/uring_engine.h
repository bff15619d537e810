// The io_uring engine. One thread submits operations and reaps completions; the kernel's own
// workers wait for the origin. At most `depth` fetches are in flight, each with one operation at a
// time. If operations hang, their ring and its thread outlive the engine, make no callbacks, and
// end when the kernel releases the operations.
#pragma once

#include <memory>
#include <string>

#include "prefetch/engine/io_engine.h"

namespace cube::prefetch {

// Returns null if io_uring is refused here (old kernel, seccomp, kernel.io_uring_disabled); `why`
// is then the reason.
std::unique_ptr<IoEngine> make_uring_engine(const EngineOptions& options, FetchClient& client,
                                            std::string& why);

}  // namespace cube::prefetch
