// The tier of the memcached servers that nodes share (doc/CLUSTER.md). On a miss, a program asks
// the home server of the file. Files that a program has fetched from the origin are offered in the
// background (cluster_offers.h). Invariants: visit() passes only records that are whole and have
// this path. A record is served without a revalidation at the origin only under four conditions.
// Another process of this job has read the file. The mode is `immutable`. The mount's inode numbers
// are the same on both nodes. This node has not changed the file. An open waits at most
// CUBESHIM_CLUSTER_DEADLINE for an answer. An open waits at most 50 ms for another node that
// fetches the file or block; a fetch ahead of a block waits at most 200 ms. If this process will
// not use a lease, it gives the lease back. If the client's thread cannot be started, the tier has
// no records. Thread safety: as Tier.
#pragma once

#include <atomic>
#include <string>

#include "cache/tier/cluster/limits/ahead_window.h"
#include "cache/tier/cluster/limits/cold_pool.h"
#include "cache/tier/cluster/limits/lease_waits.h"
#include "cache/tier/shared/cluster_mounts.h"
#include "cache/tier/shared/cluster_offers.h"
#include "cache/tier/tier.h"

namespace cube::cache {

class ClusterTier final : public Tier {
 public:
  // The tier is never freed. On failure, `why` explains the failure to the user in one line.
  static base::Result<ClusterTier*> open(const base::Config& config, RamTier& ram,
                                         base::Stats& stats, std::string& why);

  bool visit(std::string_view key, Judge& judge) override;
  bool needs_no_look(const Record& record) const override { return record.job_tag != 0; }
  bool may_answer(std::string_view key) override;
  bool may_need_no_look() const override {
    return is_immutable_ && tags_.job != 0 && mounts_.are_any_stable();
  }
  Verdict judge_by_stat(const Record& record, const FileStat& stat) override;
  Verdict judge_version(const Record& record, const FileStat& stat) override;
  bool has_our_inodes(const Record& record) const override {
    return mounts_.is_stable(record.node_tag);
  }
  void note_fetched(std::string_view key, const Pin& pin) override;
  void note_block_fetched(std::string_view name, const FileKey& file, std::uint64_t at) override;
  void note_not_fetched(std::string_view key) override;
  bool takes_offers() const override { return client_.takes_offers(); }
  // Does nothing, because the client's thread offers records.
  base::Result<void> offer(std::span<const std::byte>, std::span<const std::uint64_t>) override {
    return {};
  }
  void end_offers() override {}
  void content_changed(std::string_view key, const FileStat* stat) override;
  void tree_changed() override;
  base::TierStatus status() const override;
  void abandon() override { offers_.forget(); }

  ClusterClient& client() { return client_; }

 private:
  static constexpr std::size_t k_kind = 1;
  ClusterTier(const base::Config& config, RamTier& ram, base::Stats& stats,
              ClusterClientOptions options);

  using Outcome = ClusterClient::Outcome;
  // Asks the servers. If another node has the lease of the file or block, waits for that node.
  // Listings have no leases.
  void ask(std::string_view key, const Judge& judge, const ClusterKey& place,
           ClusterClient::Answer& answer);
  bool show(std::string_view key, const ClusterPaths::Place& place, ClusterClient::Answer& answer,
            Judge& judge);
  void start_thread();
  // fetch_ns returns a quantile of the times that fetches of whole files from the origin have
  // taken. Empty: there were too few fetches. at_most limits a wait to twice the time within which
  // most of these fetches end, if this time is known.
  std::optional<std::uint64_t> fetch_ns(double quantile) const;
  std::uint64_t at_most(std::uint64_t most_ns) const;
  bool is_worth_asking(RecordKind kind);
  bool wants_lease(const Judge& judge) const;
  // The longest time for which it is worthwhile to wait for another node's fetch.
  std::uint64_t longest_wait(const Judge& judge) const;
  bool may_be_changed(std::uint64_t hash) const;
  void note_change(std::uint64_t hash);

  RamTier& ram_;
  base::Stats& stats_;
  const ClusterPaths paths_;
  const std::string space_;
  const bool is_immutable_;
  const std::uint64_t deadline_ns_;
  const ClusterTags tags_;
  // Files, blocks and listings each have a pool, because a job may get hits of only some kinds.
  static constexpr std::size_t k_shared_kinds = 3;
  ColdPool colds_[k_shared_kinds];
  ClusterMounts mounts_;
  AheadWindow ahead_;
  ClusterClient client_;
  ClusterOffers offers_;
  // The time that recent fetches of whole blocks from the origin have taken; 0: not known yet.
  std::atomic<std::uint64_t> block_fetch_ns_{0};
  LeaseWaits block_waits_;
  // The leases of this process. A `cas` of 0 marks a block that this process fetches without a
  // lease. To add a lease, a thread finds a place that is free or whose lease has expired, and
  // claims it by writing end_ns first. Later the same thread removes the lease from the table.
  struct Lease {
    std::atomic<std::uint64_t> end_ns{0}, hash{0}, cas{0};
  };
  bool keep_lease(std::uint64_t hash, std::uint64_t cas);
  struct Held {
    std::uint64_t cas, age_ns;
  };
  std::optional<Held> take_lease(std::uint64_t hash);
  void give_back_lease(std::string_view key, std::uint64_t cas);
  static constexpr std::size_t k_leases = 64;
  Lease leases_[k_leases];
};

}  // namespace cube::cache
