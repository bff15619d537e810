#include "prefetch/engine/fetch_queue.h"

#include <utility>

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

}  // namespace cube::prefetch
