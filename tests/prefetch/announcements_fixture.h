// A server of announcements with its own socket, and a consumer that takes files from it.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "prefetch/order/announced/announcements.h"
#include "prefetch/threads/event_count.h"
#include "tests/prefetch/announce_client.h"
#include "tests/support/temp_dir.h"

namespace cube::prefetch::testing {

using Names = std::vector<std::string>;

struct Announced : ::testing::Test {
  tests::TempDir dir;
  std::string socket = dir / "region.sock", why;
  EventCount arrivals;
  std::atomic<int> arrived{0};
  std::unique_ptr<Announcements> source;

  std::unique_ptr<Announcements> start_at(const std::string& path) {
    return Announcements::start({path,
                                 {"/data", "/more"},
                                 [](void* of) {
                                   static_cast<Announced*>(of)->arrived.fetch_add(1);
                                   static_cast<Announced*>(of)->arrivals.notify();
                                 },
                                 this},
                                why);
  }
  void SetUp() override {
    source = start_at(socket);
    ASSERT_NE(source, nullptr) << why;
  }
  // Returns a client that is connected and has received the server's welcome.
  AnnounceClient client(std::uint32_t rank = 0) const {
    AnnounceClient made(socket);
    EXPECT_EQ(made.hear().size(), sizeof(WelcomeMessage));
    EXPECT_TRUE(made.say(hello(rank)));
    return made;
  }
  // The server handles its known clients before it accepts a new client. So after this call it has
  // read all earlier messages, and has noticed which clients have left.
  void barrier() const { client(); }
  // Waits for the next file.
  PlannedFile take() {
    PlannedFile file;
    while (true) {
      const auto seen = arrivals.now();
      const int count = arrived.load();
      if (source->next(file) == PathSource::Next::file) return file;
      if (count != arrived.load()) continue;
      arrivals.wait(seen, 60'000'000'000ULL);
      if (seen != arrivals.now()) continue;
      ADD_FAILURE() << "nothing arrives";
      return file;
    }
  }
  Names take(std::size_t count) {
    Names names;
    while (names.size() < count && !HasFailure()) names.push_back(take().path);
    return names;
  }
  bool has_more() const {
    PlannedFile file;
    return source->next(file) == PathSource::Next::file;
  }
};

inline Names numbered(const std::string& before, std::size_t from, std::size_t to) {
  Names names;
  for (std::size_t i = from; i < to; ++i) names.push_back(before + std::to_string(i));
  return names;
}

}  // namespace cube::prefetch::testing
