#include "prefetch/work/cluster_thread.h"

#include "cache/base/log.h"
#include "cache/base/process/sandbox.h"
#include "cache/tier/cluster/helper_thread.h"
#include "prefetch/threads/background_thread.h"
#include "prefetch/threads/thread_crew.h"
#include "prefetch/threads/thread_trial.h"

namespace cube::prefetch {
namespace {

constexpr std::size_t k_helper_stack = 64 << 10;

class ClusterThread final : public ThreadCrew {
 public:
  ClusterThread(cache::ClusterClient& client, cache::OfferSource& source)
      : ThreadCrew({.without = "nothing is shared with other nodes", .stack = 256 << 10}),
        client_(client),
        source_(source) {}
  // The crew is let go at once, because the client stops the thread and waits for it.
  static bool start(cache::ClusterClient& client, cache::OfferSource& source) {
    return CrewPtr<ClusterThread>(ThreadCrew::start<ClusterThread>(1, client, source)) != nullptr;
  }

 private:
  void work(unsigned) override {
    try {
      client_.run(source_);
    } catch (...) {
      client_.fail_start(/*for_good=*/true);
      throw;
    }
  }
  void work_without_table(int error) override {
    ThreadCrew::work_without_table(error);
    client_.fail_start(/*for_good=*/true);
  }

  cache::ClusterClient& client_;
  cache::OfferSource& source_;
};

// Called by the client's thread, whose fd table the helper shares.
bool start_helper_thread(void (*body)(void*), void* argument) {
  return start_background_thread(body, argument, k_helper_stack) == 0;
}

// Returns false in a sandbox that might kill the process for a new thread.
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
  if (!ClusterThread::start(client, source)) client.fail_start(/*for_good=*/true);
}

}  // namespace cube::prefetch
