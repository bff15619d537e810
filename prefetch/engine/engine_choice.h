// Which engine: the one that was asked for, or for each origin the one that is faster there.
//
// `automatic` has both. The first fetches of an origin are a trial: batches of four times the depth
// that run on one engine while the other rests, timed from the first submit to the last end, in
// turn (engine_trial.h): threads are taken as soon as io_uring was not faster by a tenth in two
// pairs, and io_uring when it was in eight. So a tie goes to the threads, mostly after three pairs,
// and one spoiled batch does not decide. A fetch that is submitted beyond a batch is held back
// until the batch is over. A batch in which the engine ran out of work, or of which something was
// cancelled, says nothing and is run again, and so is a pair whose depths differ by more than a
// quarter; after so many in vain it is threads. Nothing is fetched for the sake of the trial, and
// nothing twice.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "prefetch/engine/io_engine.h"

namespace cube::prefetch {

enum class EngineChoice { automatic, uring, threads };

// If io_uring is refused, there are threads, and the log says why. Null: neither is to be had;
// `why` says so.
std::unique_ptr<IoEngine> make_engine(EngineChoice choice, const EngineOptions& options,
                                      FetchClient& client, std::string& why);

// The two of `automatic`, for tests of the choice itself.
struct AutoParts {
  using Make = std::function<std::unique_ptr<IoEngine>(FetchClient& client)>;
  Make threads, uring;
  std::uint64_t (*now_ns)() = nullptr;
};
std::unique_ptr<IoEngine> make_auto_engine(const AutoParts& parts, const EngineOptions& options,
                                           FetchClient& client);

}  // namespace cube::prefetch
