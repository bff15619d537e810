// A client of an engine that gives each fetch its own memory, checks the contract of io_engine.h,
// and keeps the results.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "prefetch/engine/io_engine.h"
#include "prefetch/engine/thread_engine.h"
#include "prefetch/engine/uring_engine.h"
#include "tests/support/sanitizers.h"

namespace cube::prefetch::testing {

struct Order : Fetch {
  explicit Order(std::string at) : text(std::move(at)) { path = text.c_str(); }

  std::string text, room;
  cache::FileAtOrigin file;
  FetchResult result;
  int asked = 0, times_ended = 0;
  bool guard_is_whole = true;

  std::string content() const { return room.substr(0, file.stat.size); }
};

class Client : public FetchClient {
 public:
  bool look_again = false;
  std::uint64_t most = 64 << 20;
  // Called without a lock. With these functions, a test acts between two steps of a fetch.
  std::function<void(Order&)> when_asked, when_ended;
  static constexpr int k_too_large = 7, k_not_regular = 8;

  Room room_for(Fetch& fetch, const cache::FileAtOrigin& file) override {
    auto& order = static_cast<Order&>(fetch);
    order.file = file;
    ++order.asked;
    // The library asks the kernel about writers through this fd, which is in the fd table of the
    // calling thread.
    EXPECT_TRUE(!file.stat.is_regular() || file.origin != cache::k_mounts ||
                (fcntl(file.fd, F_GETFL) & O_ACCMODE) == O_RDONLY);
    if (when_asked) when_asked(order);
    if (!file.stat.is_regular()) return Room::decline(k_not_regular);
    if (file.stat.size > most) return Room::decline(k_too_large);
    order.room.assign(file.stat.size + 1, '#');
    return Room::give(reinterpret_cast<std::byte*>(order.room.data()), look_again);
  }
  void ended(Fetch& fetch, const FetchResult& result) override {
    auto& order = static_cast<Order&>(fetch);
    order.result = result;
    order.guard_is_whole = order.room.empty() || order.room.back() == '#';
    if (when_ended) when_ended(order);
    const std::lock_guard lock(mutex_);
    ++order.times_ended;
    ++ended_;
    changed_.notify_all();
  }
  void wait_for(unsigned ended) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_ >= ended; });
  }
  unsigned ended_so_far() {
    const std::lock_guard lock(mutex_);
    return ended_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  unsigned ended_ = 0;
};

enum class Kind { threads, uring };

inline std::unique_ptr<IoEngine> make(Kind kind, Client& client, EngineOptions options,
                                      std::string& why) {
  // Stack frames are larger with a sanitizer.
  if (tests::k_asan || tests::k_tsan) options.stack = 1 << 20;
  return kind == Kind::threads ? make_thread_engine(options, client, why)
                               : make_uring_engine(options, client, why);
}

// Runs each test with both engines. If the kernel refuses io_uring, its tests are skipped with the
// kernel's reason.
class BothEngines : public ::testing::TestWithParam<Kind> {
 protected:
  void start(EngineOptions options = {}) {
    std::string why;
    engine = make(GetParam(), client, options, why);
    if (engine == nullptr && GetParam() == Kind::uring) GTEST_SKIP() << why;
    ASSERT_NE(engine, nullptr) << why;
  }
  Order& order(const std::string& path) {
    return *orders.emplace_back(std::make_unique<Order>(path));
  }
  Order& fetch(const std::string& path) {
    Order& one = order(path);
    engine->submit(one);
    engine->drain();
    EXPECT_EQ(one.times_ended, 1);
    EXPECT_TRUE(one.guard_is_whole) << "wrote beyond the room";
    return one;
  }

  // The order of these members matters: an engine must not outlive objects that it may still use.
  std::vector<std::unique_ptr<Order>> orders;
  Client client;
  std::unique_ptr<IoEngine> engine;
};

#define START_ENGINE(...) \
  start(__VA_ARGS__);     \
  if (IsSkipped() || HasFatalFailure()) return

inline std::string name_of(const ::testing::TestParamInfo<Kind>& info) {
  return info.param == Kind::threads ? "Threads" : "Uring";
}

}  // namespace cube::prefetch::testing
