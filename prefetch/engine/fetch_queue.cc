#include "prefetch/engine/fetch_queue.h"

#include <utility>

#include "cache/base/clock.h"

namespace cube::prefetch {

void FetchQueue::end_all(FetchClient& client, Ending ending, int error) {
  FetchResult result;
  result.ending = ending;
  result.error = error;
  while (Fetch* const fetch = pop()) {
    for (Fetch* one = fetch; one != nullptr;)
      client.ended(*std::exchange(one, one->beside), result);
    one_is_over();
  }
}

bool FetchQueue::wait_until_all_are_over(std::uint64_t until_ns) {
  for (auto seen = over_.now(); unended_.load(std::memory_order_acquire) != 0; seen = over_.now()) {
    if (until_ns == UINT64_MAX) {
      over_.wait(seen);
      continue;
    }
    const std::uint64_t now = base::monotonic_ns();
    if (now >= until_ns) return false;
    over_.wait(seen, until_ns - now);
  }
  return true;
}

}  // namespace cube::prefetch
