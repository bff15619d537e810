#include "prefetch/engine/engine_core.h"

#include <algorithm>
#include <utility>

#include "cache/base/clock.h"
#include "cache/base/error_text.h"
#include "prefetch/threads/starter_traits.h"

namespace cube::prefetch {
namespace {

namespace sys = base::sys;

EngineOptions with_bounded_depth(EngineOptions options) {
  options.depth = EngineCore::bounded(options.depth);
  return options;
}

class CoreEngine final : public IoEngine {
 public:
  explicit CoreEngine(CrewPtr<EngineCore> core) : core_(std::move(core)) {}
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
    if (is_owner()) core_->queue.wait_for_all();
  }
  unsigned stop(unsigned patience_ms) override {
    if (!is_owner() || std::exchange(is_stopped_, true)) return 0;
    core_->queue.close();
    cancel_waiting();
    core_->end_flights();
    core_->queue.wait_for_all(patience_ms * base::k_ns_per_ms);
    return core_->abandon_all();
  }

 private:
  // False in a forked child, which has a copy of this object but none of the threads.
  bool is_owner() const { return sys::getpid() == owner_; }

  const int owner_ = sys::getpid();
  const CrewPtr<EngineCore> core_;
  bool is_stopped_ = false;
};

}  // namespace

EngineCore::EngineCore(const EngineOptions& engine_options, FetchClient& of)
    : ThreadCrew(
          {.stack = engine_options.stack, .nice = engine_options.nice, .shares_table = true}),
      options(with_bounded_depth(engine_options)),
      client(of) {}

unsigned EngineCore::bounded(unsigned depth) { return std::clamp(depth, 1U, k_most_depth); }

bool EngineCore::begin(std::string& why) {
  if (const int error = start_thread(may_change_traits()); error != 0) {
    why = std::string("no thread can be started: ") + base::text_of_error(error);
    return false;
  }
  const int error = wait_for_tables();
  if (error != 0)
    why =
        std::string("no file descriptors of its own (close_range): ") + base::text_of_error(error);
  return error == 0;
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

std::unique_ptr<IoEngine> engine_of(CrewPtr<EngineCore> core) {
  return std::make_unique<CoreEngine>(std::move(core));
}

}  // namespace cube::prefetch
