#include "prefetch/engine/engine_choice.h"

#include <exception>
#include <utility>

#include "cache/base/clock.h"
#include "cache/base/log.h"
#include "cache/base/process/sandbox.h"
#include "prefetch/engine/auto_engine.h"
#include "prefetch/engine/thread_engine.h"
#include "prefetch/engine/uring_engine.h"

namespace cube::prefetch {
namespace {

using base::EngineKind;

std::unique_ptr<IoEngine> make(EngineKind choice, const EngineOptions& options, FetchClient& client,
                               std::string& why) {
  // A seccomp filter might kill the process for calls that the program itself never makes, and many
  // filters refuse io_uring.
  if (choice == EngineKind::threads ||
      (choice == EngineKind::automatic && base::may_be_sandboxed()))
    return make_thread_engine(options, client, why);
  // Checks whether a ring is available at all. An engine without work costs one thread.
  auto ring = make_uring_engine(options, client, why);
  if (ring == nullptr) {
    const bool was_asked_for = choice == EngineKind::uring;
    base::log(was_asked_for ? base::LogLevel::warn : base::LogLevel::info,
              "prefetch: no io_uring, threads instead: {}", why);
    return make_thread_engine(options, client, why);
  }
  if (choice == EngineKind::uring) return ring;
  ring.reset();
  AutoParts parts;
  parts.threads = [&](FetchClient& of) { return make_thread_engine(options, of, why); };
  parts.uring = [&](FetchClient& of) { return make_uring_engine(options, of, why); };
  parts.now_ns = base::monotonic_ns;
  auto both = make_auto_engine(parts, options, client);
  return both != nullptr ? std::move(both) : make_thread_engine(options, client, why);
}

}  // namespace

std::unique_ptr<IoEngine> make_engine(EngineKind choice, const EngineOptions& options,
                                      FetchClient& client, std::string& why) {
  try {
    return make(choice, options, client, why);
  } catch (const std::exception&) {
    why = "no memory";
    return nullptr;
  }
}

std::unique_ptr<IoEngine> make_auto_engine(const AutoParts& parts, const EngineOptions& options,
                                           FetchClient& client) {
  auto engine = std::make_unique<AutoEngine>(options.depth, client, parts.now_ns);
  if (!engine->take(parts.threads(*engine), parts.uring(*engine))) return nullptr;
  return engine;
}

}  // namespace cube::prefetch
