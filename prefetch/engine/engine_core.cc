#include "prefetch/engine/engine_core.h"

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "cache/base/clock.h"
#include "prefetch/threads/background_thread.h"

namespace cube::prefetch {
namespace {

namespace sys = base::sys;

EngineOptions with_bounded_depth(EngineOptions options) {
  options.depth = EngineCore::bounded(options.depth);
  return options;
}

class CoreEngine final : public IoEngine {
 public:
  explicit CoreEngine(std::shared_ptr<EngineCore> core) : core_(std::move(core)) {}
  ~CoreEngine() override { stop(50); }

  const char* name() const override { return core_->name(); }
  void submit(Fetch& fetch) override {
    if (!is_owner() || !core_->queue.push(fetch)) return core_->client.ended(fetch, {});
    core_->wake();
  }
  void set_depth(unsigned depth) override {
    if (is_owner()) core_->set_depth(EngineCore::bounded(depth));
  }
  void cancel_waiting() override {
    if (is_owner()) core_->queue.end_all(core_->client, Ending::cancelled);
  }
  void drain() override {
    if (is_owner()) core_->queue.wait_until_all_are_over(UINT64_MAX);
  }
  unsigned stop(unsigned patience_ms) override {
    if (!is_owner() || std::exchange(is_stopped_, true)) return 0;
    const std::uint64_t until = base::monotonic_ns() + patience_ms * 1'000'000ULL;
    core_->queue.close();
    cancel_waiting();
    core_->begin_stop();
    core_->queue.wait_until_all_are_over(until);
    return core_->abandon_all();
  }

 private:
  // A forked child has a copy of this object and none of the threads.
  bool is_owner() const { return sys::getpid() == owner_; }

  const int owner_ = sys::getpid();
  const std::shared_ptr<EngineCore> core_;
  bool is_stopped_ = false;
};

}  // namespace

struct EngineCore::Start {
  std::shared_ptr<EngineCore> core;
  void* place;
};

EngineCore::EngineCore(const EngineOptions& engine_options, FetchClient& of)
    : options(with_bounded_depth(engine_options)), client(of) {}

unsigned EngineCore::bounded(unsigned depth) { return std::clamp(depth, 1U, k_most_depth); }

void EngineCore::thread_body(void* start) {
  const std::unique_ptr<Start> own(static_cast<Start*>(start));
  own->core->run(own->place);
}

int EngineCore::start_thread(void* place) {
  auto* const start = new (std::nothrow) Start{shared_from_this(), place};
  if (start == nullptr) return ENOMEM;
  const int error = start_background_thread(thread_body, start, options.stack);
  if (error != 0) delete start;
  return error;
}

unsigned EngineCore::abandon(Fetch* fetch, bool has_room) {
  if (fetch == nullptr) return 0;
  FetchResult result;
  result.ending = Ending::abandoned;
  result.has_room = result.room_is_lost = has_room;
  Fetch* rest = fetch->beside;
  client.ended(*fetch, result);
  while (rest != nullptr) client.ended(*std::exchange(rest, rest->beside), {});
  return 1;
}

std::unique_ptr<IoEngine> engine_of(std::shared_ptr<EngineCore> core) {
  return std::make_unique<CoreEngine>(std::move(core));
}

}  // namespace cube::prefetch
