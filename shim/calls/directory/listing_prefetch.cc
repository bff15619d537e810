#include "shim/calls/directory/listing_prefetch.h"

#include <cstdint>

#include "cache/base/process/signal_frame.h"
#include "shim/process/attachment.h"
#include "shim/process/c_result.h"
#include "shim/process/process.h"
#include "shim/threads/own_threads.h"

namespace cube::shim::listing_prefetch {

void note_listing(std::string_view directory) {
  if (!process::config().prefetch || directory.empty()) return;
  const KeepErrno keep;
  if (auto* const cache = attachment::cache(); cache != nullptr)
    cache->ahead().listings().note_listed(directory);
}

void note_miss(cache::FileCache& cache, std::string_view file, std::uint64_t bytes) {
  if (!process::config().prefetch ||
      !cache.ahead().listings().note_read(file, bytes, /*was_fetched_ahead=*/false))
    return;
  // A signal handler must not start a thread. A later miss can start the thread.
  if (base::may_be_in_handler()) return;
  if (cache.ahead().is_full() || !cache.ahead().listings().post(file.substr(0, file.rfind('/'))))
    return;
  own_threads::start();
}

}  // namespace cube::shim::listing_prefetch
