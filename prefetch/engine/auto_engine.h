// An engine that runs a thread engine and an io_uring engine and assigns each origin to the faster
// of the two; see engine_choice.h. Thread safety: the same as that of IoEngine. No engine is called
// under the lock, because the engine can call back immediately.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>

#include "cache/base/mutex.h"
#include "prefetch/engine/engine_trial.h"
#include "prefetch/engine/io_engine.h"
#include "prefetch/threads/event_count.h"

namespace cube::prefetch {

class AutoEngine final : public IoEngine, public FetchClient {
 public:
  AutoEngine(unsigned depth, FetchClient& client, std::uint64_t (*now_ns)());
  ~AutoEngine() override { stop(50); }
  bool take(std::unique_ptr<IoEngine> threads, std::unique_ptr<IoEngine> uring);

  const char* name() const override { return "auto"; }
  const char* name_for(std::uint32_t origin) const override;
  void submit(Fetch& fetch) override;
  void look_for_hangs() override;
  void set_depth(unsigned depth) override;
  void cancel_waiting() override;
  void drain() override;
  unsigned stop(unsigned patience_ms) override;

  Room room_for(Fetch& fetch, const cache::FileAtOrigin& file) override {
    return client_.room_for(fetch, file);
  }
  void ended(Fetch& fetch, const FetchResult& result) override;

 private:
  enum class Choice : std::uint8_t { open, threads, uring };
  struct Origin {
    // Written once, under the lock. A reader that sees a choice needs no lock.
    std::atomic<Choice> choice{Choice::open};
    EngineTrial trial;
    Fetch *first = nullptr, *last = nullptr;  // held back
    unsigned submitted = 0, ended = 0;        // fetches of the running batch; 0: no batch runs
    unsigned size = 0, voids = 0;             // the size of a batch; the number of batches that did
                                              // not count
    bool is_void = false;
    std::uint64_t began_ns = 0, last_end_ns = 0;  // of the running batch
  };
  static constexpr std::size_t k_origins = 16;  // all further origins share the last entry
  static constexpr unsigned k_most_voids = 64;
  // A batch hangs if none of its fetches has ended for this long.
  static constexpr std::uint64_t k_patience_ns = 5'000'000'000;

  bool is_owner() const { return base::sys::getpid() == owner_; }
  static std::size_t place_of(std::uint32_t origin) {
    return origin < k_origins ? origin : k_origins - 1;
  }
  unsigned wanted_size() const;
  void say(const Origin& origin) const;
  // Called under the lock. Starts the next batch with the fetches that are about to be passed on.
  void begin_batch(Origin& origin);
  // Called under the lock. Adds the fetch to the batch and returns true, or holds it back and
  // returns false.
  bool take_up(Origin& origin, Fetch& fetch);
  // Called under the lock. Notes that one fetch of the batch has ended. Returns the chain of
  // fetches that may be submitted now.
  Fetch* one_of_batch_ended(Origin& origin, bool counts);
  Fetch* batch_is_over(Origin& origin);
  // Called under the lock. Ends the trial if its batch hangs. Returns the chain of fetches that may
  // be submitted now.
  Fetch* end_of_hanging_trial(Origin& origin);
  void pass_on(Side side, Fetch* chain);
  void end_held();

  FetchClient& client_;
  std::uint64_t (*const now_ns_)();
  const int owner_ = base::sys::getpid();
  std::unique_ptr<IoEngine> engines_[2];  // by Side

  base::Mutex mutex_;  // guards all members below except the choices, is_told_, unended_ and
                       // all_over_
  std::array<Origin, k_origins> origins_;
  unsigned depth_;
  bool is_stopped_ = false;
  std::array<std::atomic<bool>, k_origins> is_told_{};
  std::atomic<unsigned> unended_{0};
  EventCount all_over_;
};

}  // namespace cube::prefetch
