// Chooses the engine: either the engine that the settings name, or the faster engine for each
// origin.
//
// The setting `automatic` creates both engines. The first fetches of an origin are a trial. Batches
// of four times the depth run on the two engines alternately, and each is timed from its first
// submit to its last end (engine_trial.h). The trial chooses io_uring when io_uring was faster by a
// tenth in eight pairs of batches, and threads when io_uring did not reach this lead in two pairs.
// A tie therefore selects threads, usually after three pairs, and one disturbed batch does not
// decide the trial.
//
// A fetch that is submitted beyond a batch is held back until the batch has ended. A batch does not
// count, and is run again, if the engine ran out of work or some of its fetches were cancelled. A
// pair of batches whose depths differ by more than a quarter is also run again. The trial
// chooses threads after too many batches that do not count. It also chooses threads if other
// fetches are held back and no fetch of the batch ends for five seconds. The trial fetches only
// files that would be fetched anyway, and no file twice.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cache/base/settings/config.h"
#include "prefetch/engine/io_engine.h"

namespace cube::prefetch {

// Falls back to threads if io_uring is refused, and logs the reason. Returns null if no engine can
// be made; `why` is then the reason.
std::unique_ptr<IoEngine> make_engine(base::EngineKind choice, const EngineOptions& options,
                                      FetchClient& client, std::string& why);

// Replaces the two engines of `automatic`, for tests of the choice itself.
struct AutoParts {
  using Make = std::function<std::unique_ptr<IoEngine>(FetchClient& client)>;
  Make threads, uring;
  std::uint64_t (*now_ns)() = nullptr;
};
std::unique_ptr<IoEngine> make_auto_engine(const AutoParts& parts, const EngineOptions& options,
                                           FetchClient& client);

}  // namespace cube::prefetch
