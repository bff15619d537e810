// Decides whether all users may reach a file or a directory. Asks the origin for the stats of the
// directories on the real path, because a link may lead below a directory that is closed. A
// separate thread makes the checks, so that an origin that hangs does not hold up the client's
// thread. Only one check is in progress at a time, and its result is valid for a minute. The thread
// starts at the first check. end() tells it to end, without waiting. Thread safety: only the
// client's thread may use the object.
#pragma once

#include <atomic>
#include <map>
#include <string>
#include <string_view>

#include "cache/tier/cluster/cluster_client.h"

namespace cube::cache {

// Whether all users may search the directories that lead to this file or directory, and the
// directory itself. Follows links.
bool can_be_reached_by_all(const char* path);

class ClusterPathRights {
 public:
  enum class Access : std::uint8_t { all, some, unknown };
  // `client` is woken when a check has ended.
  explicit ClusterPathRights(ClusterClient& client) : client_(client) {}
  ~ClusterPathRights() { end(); }
  ClusterPathRights(const ClusterPathRights&) = delete;
  ClusterPathRights& operator=(const ClusterPathRights&) = delete;

  // Returns the result of a check, without waiting. Returns `unknown` while this check or another
  // one is in progress.
  Access access_to(std::string_view path, std::uint64_t now_ns);
  // Whether the current check takes so long that other records should not wait for it.
  bool is_stuck(std::uint64_t now_ns) const;
  void end();
  // For a forked child, which does not have the checking thread.
  void forget() { desk_ = nullptr; }

 private:
  class Desk;
  struct Known {
    std::uint64_t until_ns = 0;
    bool is_open = false;
  };
  void ask(std::string_view path, std::uint64_t now_ns);
  void collect(std::uint64_t now_ns);

  ClusterClient& client_;
  Desk* desk_ = nullptr;  // null: there is no thread
  std::uint64_t asked_ns_ = 0, next_start_ns_ = 0;
  std::map<std::string, Known, std::less<>> known_;
};

}  // namespace cube::cache
