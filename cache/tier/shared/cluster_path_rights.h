// Decides whether all users may search the directories of a file. A check is a stat at the origin,
// made by a separate thread: an origin that hangs holds up that thread, and not the one that talks
// to the servers. One check is under way at a time; its result holds for a minute. Life: the thread
// starts at the first check; end() tells it to end and does not wait for it; the state that both
// share is deleted with the last of them. Thread safety: the client's thread alone, except for the
// checking thread's own part.
#pragma once

#include <atomic>
#include <map>
#include <string>
#include <string_view>

#include "cache/tier/cluster/cluster_client.h"

namespace cube::cache {

class ClusterPathRights {
 public:
  enum class Access : std::uint8_t { all, some, unknown };
  // Wakes the client when a check has ended.
  explicit ClusterPathRights(ClusterClient& client) : client_(client) {}
  ~ClusterPathRights() { end(); }
  ClusterPathRights(const ClusterPathRights&) = delete;
  ClusterPathRights& operator=(const ClusterPathRights&) = delete;

  // Never waits. Returns unknown if this check or another one is under way.
  Access access_to(std::string_view directory, std::uint64_t now_ns);
  // True if the check takes so long that other records should not wait for it.
  bool is_stuck(std::uint64_t now_ns) const;
  void end();
  // For a forked child, which has no such thread.
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
