#include "prefetch/work/cluster_thread.h"

#include <new>

#include "cache/base/error_text.h"
#include "cache/base/log.h"
#include "cache/base/process/sandbox.h"
#include "cache/tier/cluster/helper_thread.h"
#include "prefetch/threads/background_thread.h"
#include "prefetch/threads/thread_trial.h"

namespace cube::prefetch {
namespace {

constexpr std::size_t k_cluster_stack = 256 << 10, k_helper_stack = 64 << 10;

struct ClusterStart {
  cache::ClusterClient& client;
  cache::OfferSource& source;
};

void run_client(void* of) {
  const ClusterStart start = *static_cast<ClusterStart*>(of);
  delete static_cast<ClusterStart*>(of);
  // Without a private fd table, the host could close the client's sockets, or read from them.
  if (const auto table = take_private_fd_table(); !table) {
    base::log(base::LogLevel::info,
              "nothing is shared with other nodes: close_range(CLOSE_RANGE_UNSHARE): {}",
              base::text_of_error(table.error().value));
    start.client.fail_start(/*for_good=*/true);
    return;
  }
  try {
    start.client.run(start.source);
  } catch (...) {
    base::log(base::LogLevel::warn, "nothing is shared with other nodes: no memory");
    start.client.fail_start(/*for_good=*/true);
  }
}

// Called by the client's thread, whose fd table the helper shares.
bool start_helper_thread(void (*body)(void*), void* argument) {
  return start_background_thread(body, argument, k_helper_stack) == 0;
}

// False in a sandbox that may kill for a new thread.
bool may_have_thread() {
  if (!base::may_be_sandboxed()) return true;
  return base::is_clone_known_to_be_allowed() &&
         try_calls_of_threads(ThreadCalls::with_cluster) == 0;
}

}  // namespace

void start_cluster_thread(cache::ClusterClient& client, cache::OfferSource& source) {
  if (!client.claim_start()) return;
  if (!may_have_thread()) {
    base::log(base::LogLevel::info,
              "nothing is shared with other nodes: the program is in a sandbox (seccomp)");
    return client.fail_start(/*for_good=*/true);
  }
  cache::g_start_helper_thread.store(start_helper_thread, std::memory_order_release);
  auto* const start = new (std::nothrow) ClusterStart{client, source};
  const int error =
      start == nullptr ? ENOMEM : start_background_thread(run_client, start, k_cluster_stack);
  if (error == 0) return;
  base::log(base::LogLevel::info, "nothing is shared with other nodes: no thread: {}",
            base::text_of_error(error));
  delete start;
  client.fail_start(/*for_good=*/true);
}

}  // namespace cube::prefetch
