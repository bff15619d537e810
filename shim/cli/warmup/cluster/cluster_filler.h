// The work of one thread of `cubeshim warmup --to-cluster`. For each file, the thread asks the
// file's server for a lease, reads the file from the origin, and sends it to the server. Thread
// safety: a ClusterFiller belongs to one thread; all ClusterFillers share a ClusterFill.
#pragma once

#include <atomic>
#include <memory>
#include <unordered_map>

#include "cache/base/memory/mapping.h"
#include "cache/base/settings/server_row.h"
#include "cache/origin/mount_file.h"
#include "cache/tier/cluster/cluster_key.h"
#include "cache/tier/shared/cluster_paths.h"
#include "cache/tier/shared/cluster_record.h"
#include "shim/cli/pool/pool_talk.h"
#include "shim/cli/warmup/cluster/cluster_jobs.h"

namespace cube::cli {

// The state that the threads share. It exists until the last thread has ended.
struct ClusterFill {
  struct Server {
    std::string name;
    cache::ServerAddress address;
    bool has_address = false;
    std::atomic<std::uint64_t> free_ns{0};             // TokenBucket
    std::atomic<std::uint64_t> rests_until_ns{0};      // the server is not asked before this time
    std::atomic<std::uint64_t> full_from{UINT64_MAX};  // bytes of the smallest refused value
  };
  explicit ClusterFill(const base::Config& config);

  const base::Config config;
  const cache::ClusterPaths paths;
  const cache::ClusterTags tags;
  std::string login;
  std::vector<std::unique_ptr<Server>> servers;
  ClusterJobs jobs;
  std::atomic<std::uint64_t> there{0}, by_others{0}, read{0}, read_bytes{0}, shared{0},
      shared_bytes{0};
};

class ClusterFiller {
 public:
  explicit ClusterFiller(std::shared_ptr<ClusterFill> fill)
      : fill_(std::move(fill)), talks_(fill_->servers.size()) {}
  // Runs until the jobs end.
  void run();

 private:
  using Server = ClusterFill::Server;
  struct Lease {
    cache::ClusterKey key;
    std::size_t server = 0;
    std::uint64_t cas = 0;
  };
  void fill(ClusterJob& job);
  // Reads the file from the origin and sends it.
  void bring(ClusterJob& job, const cache::ClusterPaths::Place& place, Lease& lease);
  void send(ClusterJob& job, const cache::ClusterPaths::Place& place, const cache::Record& record,
            Lease& lease);
  void give_back(const Lease& lease);
  void leave_out(ClusterJob& job, NotShared why, int error = 0);
  void server_failed(ClusterJob& job, std::size_t server);
  // Returns a connection to the server, or null.
  PoolTalk* talk_to(std::size_t server);
  bool is_public(const std::string& path);
  bool pay(Server& server, std::uint64_t bytes);

  std::shared_ptr<ClusterFill> fill_;
  std::vector<PoolTalk> talks_;
  base::Mapping room_;
  std::unordered_map<std::string, bool> are_public_;  // true: all users may reach the path
};

}  // namespace cube::cli
