// May everybody go through the directories of a file? A look is a stat of the origin, by a thread
// of its own: an origin that hangs holds up this thread, and not the one that has the servers. One
// look is under way at a time; what it finds holds for a minute. Life: the thread starts at the
// first look and is told to end by end(), which does not wait for it: what both use goes with the
// last of them. Thread safety: the client's thread alone, but for the looking thread's own part.
#pragma once

#include <atomic>
#include <map>
#include <string>
#include <string_view>

#include "cache/tier/cluster/cluster_client.h"

namespace cube::cache {

class ClusterLooks {
 public:
  enum class Access : std::uint8_t { all, some, unknown };
  // Wakes this one when a look has ended.
  explicit ClusterLooks(ClusterClient& client) : client_(client) {}
  ~ClusterLooks() { end(); }
  ClusterLooks(const ClusterLooks&) = delete;
  ClusterLooks& operator=(const ClusterLooks&) = delete;

  // Never waits. Unknown: the look is under way, or another one is.
  Access access_to(std::string_view directory, std::uint64_t now_ns);
  // The look takes long: others need not wait for it.
  bool is_stuck(std::uint64_t now_ns) const;
  void end();
  // In a forked child, which has no such thread.
  void forget() { desk_ = nullptr; }

 private:
  class Desk;
  struct Known {
    std::uint64_t until_ns = 0;
    bool is_open = false;
  };
  void ask(std::string_view directory, std::uint64_t now_ns);
  void collect(std::uint64_t now_ns);

  ClusterClient& client_;
  Desk* desk_ = nullptr;  // null: there is no thread
  std::uint64_t asked_ns_ = 0, next_start_ns_ = 0;
  std::map<std::string, Known, std::less<>> known_;
};

}  // namespace cube::cache
