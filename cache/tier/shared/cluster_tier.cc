#include "cache/tier/shared/cluster_tier.h"

#include <cerrno>
#include <new>

#include "cache/base/clock.h"
#include "cache/base/hash.h"
#include "cache/record/recent_change.h"
#include "cache/tier/rights.h"
#include "cache/tier/shared/cluster_identity.h"

namespace cube::cache {
namespace {

using base::Counter;

constexpr unsigned k_lease_seconds = 2;
constexpr std::uint64_t k_usual_item_bytes = 17 << 20;  // memcached -I 17m (doc/CLUSTER.md)
constexpr std::uint64_t k_lease_ns = k_lease_seconds * 1000 * base::k_ns_per_ms;
constexpr std::uint64_t k_longest_wait_ns = 50 * base::k_ns_per_ms,
                        k_longest_wait_ahead_ns = 200 * base::k_ns_per_ms,
                        k_shortest_deadline_ns = 2 * base::k_ns_per_ms, k_first_pause_ns = 500'000,
                        k_longest_pause_ns = 4 * base::k_ns_per_ms;
constexpr std::uint64_t k_enough_fetches = 16;
// If fetches from the origin take this long, a request to a server costs almost nothing in
// comparison.
constexpr std::uint64_t k_slow_fetch_ns = 3 * base::k_ns_per_ms;

std::size_t shared_kind(RecordKind kind) {
  return kind == RecordKind::file ? 0 : kind == RecordKind::block ? 1 : 2;
}

void pause_for(std::uint64_t ns) {
  const std::uint32_t word = 0;
  base::sys::futex_wait(&word, 0, ns);
}

// While this object exists, a thread that fetches ahead may hold an answer (AheadWindow::hold).
class HeldAhead {
 public:
  HeldAhead(AheadWindow& window, const Tier::Judge& judge)
      : window_(judge.whom() == Tier::Judge::For::many ? &window : nullptr) {
    if (window_ != nullptr) window_->hold();
  }
  ~HeldAhead() {
    if (window_ != nullptr) window_->let_go();
  }
  HeldAhead(const HeldAhead&) = delete;
  HeldAhead& operator=(const HeldAhead&) = delete;

 private:
  AheadWindow* const window_;
};

}  // namespace

base::Result<ClusterTier*> ClusterTier::open(const base::Config& config, RamTier& ram,
                                             base::Stats& stats, std::string& why) {
  ClusterClientOptions options;
  options.servers = config.cluster.texts;
  options.deadline_ns = config.cluster_deadline.ms * base::k_ns_per_ms;
  options.fill_per_second = config.cluster_fill;
  // Another node may share larger files than this node accepts. A value above this limit would
  // close the connection, so the limit includes all usual items. A record that is too large is then
  // refused without closing the connection.
  options.most_bytes = std::max(largest_cluster_value(config), k_usual_item_bytes);
  options.rows = &ram.region().server_row(0);
  options.stats = &stats;
  if (options.servers.size() > base::k_server_rows) {
    why = fmt::format("CUBESHIM_CLUSTER names too many servers: it takes up to {}",
                      base::k_server_rows);
    return base::fail(EINVAL);
  }
  if (!read_cluster_login(config.cluster_login, options.login, why)) return base::fail(EINVAL);
  auto* const tier = new (std::nothrow) ClusterTier(config, ram, stats, std::move(options));
  if (tier == nullptr) return base::fail(ENOMEM);
  return tier;
}

ClusterTier::ClusterTier(const base::Config& config, RamTier& ram, base::Stats& stats,
                         ClusterClientOptions options)
    : Tier(k_kind),
      ram_(ram),
      stats_(stats),
      paths_(config),
      space_(config.cluster_name),
      is_immutable_(config.consistency.kind == base::ConsistencyKind::immutable),
      deadline_ns_(options.deadline_ns),
      tags_(cluster_tags(config)),
      ahead_(options.servers.size()),
      client_(std::move(options)),
      offers_(ram, paths_, client_,
              {.space = space_,
               .tags = tags_,
               .with_private = config.cluster_trust,
               .tier = k_kind,
               .block = config.block,
               .most_bytes = std::max(config.max_file, config.block)}) {}

void ClusterTier::start_thread() {
  if (client_.life() != ClusterClient::Life::none) return;
  const StartClusterThread start = g_start_cluster_thread.load(std::memory_order_acquire);
  if (start != nullptr) start(client_, offers_);
}

std::optional<std::uint64_t> ClusterTier::fetch_ns(double quantile) const {
  std::array<std::uint64_t, base::Histogram::k_buckets> counts{};
  std::uint64_t fetches = 0;
  for (std::size_t i = 0; i < counts.size(); ++i)
    fetches += counts[i] = stats_.miss_latency.counts[i].load(std::memory_order_relaxed);
  if (fetches < k_enough_fetches) return std::nullopt;
  return base::quantile_ns(counts, quantile);
}

std::uint64_t ClusterTier::at_most(std::uint64_t most_ns) const {
  const auto usual = fetch_ns(0.95);
  return usual ? std::min(most_ns, std::max(2 * *usual, k_shortest_deadline_ns)) : most_ns;
}

// Whether to ask the servers. With almost no hits, only one call in 16 returns true. But a process
// that is ahead of the other nodes has no hits, and the other nodes profit from its leases. So if
// the origin is slow, this always returns true for files and blocks.
bool ClusterTier::is_worth_asking(RecordKind kind) {
  if (colds_[shared_kind(kind)].is_to_ask()) return true;
  if (kind == RecordKind::block)
    return block_fetch_ns_.load(std::memory_order_relaxed) >= k_slow_fetch_ns;
  return kind == RecordKind::file && fetch_ns(0.1).value_or(0) >= k_slow_fetch_ns;
}

// A process that offers no records must not take leases, because other nodes would wait in vain.
bool ClusterTier::wants_lease(const Judge& judge) const {
  if (!client_.takes_offers()) return false;
  if (judge.wanted() == RecordKind::file) return true;
  return judge.whole_block_of() != nullptr && offers_.may_share_block_of(*judge.whole_block_of());
}

std::uint64_t ClusterTier::longest_wait(const Judge& judge) const {
  if (judge.wanted() == RecordKind::file) return at_most(k_longest_wait_ns);
  // Waits for a block at most twice as long as a fetch from the origin takes. A fetch ahead may
  // wait longer than a program: if the origin is the bottleneck, a second request for the block
  // would slow it down further.
  const std::uint64_t most =
      judge.whom() == Judge::For::program ? k_longest_wait_ns : k_longest_wait_ahead_ns;
  const std::uint64_t usual = block_fetch_ns_.load(std::memory_order_relaxed);
  return usual == 0 ? most : std::clamp(2 * usual, k_shortest_deadline_ns, most);
}

void ClusterTier::ask(std::string_view key, const Judge& judge, const ClusterKey& place,
                      ClusterClient::Answer& answer) {
  const bool is_file = judge.wanted() == RecordKind::file,
             is_one_of_many = judge.whom() == Judge::For::many;
  const bool has_lease = wants_lease(judge);
  const unsigned lease = has_lease ? k_lease_seconds : 0;
  // at_most() is based on fetches of whole files, which do not predict the time of blocks.
  const std::uint64_t deadline = is_file ? at_most(deadline_ns_) : deadline_ns_,
                      began = base::monotonic_ns();
  std::uint64_t pause = k_first_pause_ns, limit = 0;
  while (true) {
    stats_.count(Counter::cluster_gets);
    if (is_one_of_many) ahead_.enter();
    client_.get(place, lease, deadline, answer, judge.whom() != Judge::For::program);
    if (is_one_of_many) ahead_.leave(answer.outcome() == Outcome::hit ? answer.bytes().size() : 0);
    if (answer.outcome() != Outcome::taken || !has_lease) break;
    if (limit == 0) {
      if (!is_file && !block_waits_.is_to_wait()) break;
      limit = longest_wait(judge);
      stats_.count(Counter::cluster_waits);
    }
    if (base::monotonic_ns() - began + pause >= limit) break;
    pause_for(pause);
    pause = std::min(2 * pause, k_longest_pause_ns);
  }
  if (limit != 0 && !is_file) block_waits_.note(answer.outcome() == Outcome::hit);
  const std::uint64_t hash = base::hash_path(key);
  if (answer.outcome() == Outcome::won) {
    if (!keep_lease(hash, answer.cas())) client_.remove(place, answer.cas());
  } else if (has_lease && !is_file && answer.outcome() == Outcome::taken) {
    keep_lease(hash, 0);
  }
}

bool ClusterTier::keep_lease(std::uint64_t hash, std::uint64_t cas) {
  const std::uint64_t now = base::monotonic_ns();
  for (std::size_t i = 0; i < k_leases; ++i) {
    Lease& own = leases_[(hash + i) % k_leases];
    std::uint64_t end = own.end_ns.load(std::memory_order_relaxed);
    if (end >= now ||
        !own.end_ns.compare_exchange_strong(end, now + k_lease_ns, std::memory_order_acquire))
      continue;
    own.cas.store(cas, std::memory_order_relaxed);
    own.hash.store(hash, std::memory_order_relaxed);
    return true;
  }
  return false;
}

std::optional<ClusterTier::Held> ClusterTier::take_lease(std::uint64_t hash) {
  const std::uint64_t now = base::monotonic_ns();
  for (std::size_t i = 0; i < k_leases; ++i) {
    Lease& own = leases_[(hash + i) % k_leases];
    if (own.hash.load(std::memory_order_relaxed) != hash) continue;
    std::uint64_t end = own.end_ns.load(std::memory_order_relaxed);
    const std::uint64_t cas = own.cas.load(std::memory_order_relaxed);
    if (end >= now && own.end_ns.compare_exchange_strong(end, 0, std::memory_order_release))
      return Held{cas, now + k_lease_ns - end};
  }
  return std::nullopt;
}

void ClusterTier::give_back_lease(std::string_view key, std::uint64_t cas) {
  if (const auto place = paths_.place_of(key); place)
    client_.remove(ClusterKey(space_, place->origin, place->below), cas);
}

bool ClusterTier::may_answer(std::string_view key) {
  const auto place = paths_.place_of(key);
  if (!place) return false;
  start_thread();
  if (client_.is_asked(cluster_key(space_, *place, RecordKind::file)) &&
      is_worth_asking(RecordKind::file))
    return true;
  stats_.count(Counter::cluster_skipped);
  return false;
}

bool ClusterTier::visit(std::string_view key, Judge& judge) {
  const auto place = paths_.place_of(key);
  if (!place) return false;
  start_thread();
  const ClusterKey name = cluster_key(space_, *place, judge.wanted());
  const bool was_worth_it = judge.whom() == Judge::For::many;
  if (!client_.is_asked(name) || (!was_worth_it && !is_worth_asking(judge.wanted()))) {
    stats_.count(Counter::cluster_skipped);
    return false;
  }
  const HeldAhead held(ahead_, judge);
  ClusterClient::Answer answer;
  ask(key, judge, name, answer);
  switch (answer.outcome()) {
    case Outcome::hit: break;
    case Outcome::late: stats_.count(Counter::cluster_late); return false;
    case Outcome::skipped: stats_.count(Counter::cluster_skipped); return false;
    default:
      stats_.count(Counter::cluster_misses);
      colds_[shared_kind(judge.wanted())].note(/*is_hit=*/false);
      return false;
  }
  return show(key, *place, answer, judge);
}

bool ClusterTier::show(std::string_view key, const ClusterPaths::Place& place,
                       ClusterClient::Answer& answer, Judge& judge) {
  const ClusterKey name = cluster_key(space_, place, judge.wanted());
  Record* const record = check_cluster_value(answer.bytes(), judge.wanted(), place.below);
  if (record == nullptr) {
    stats_.count(Counter::cluster_damaged);
    client_.remove(name, answer.cas());
    return false;
  }
  stats_.count(Counter::cluster_hits);
  // Replaces the tags in the record. Afterwards, node_tag is the row of the mount, and job_tag
  // shows whether a revalidation is needed.
  const std::uint64_t parts[] = {record->node_tag, record->stat.device(), place.origin};
  const std::uint64_t row = mounts_.row_of(base::hash_bytes(parts, sizeof parts),
                                           tags_.node != 0 && record->node_tag == tags_.node);
  bool needs_no_look = record->kind == RecordKind::file && is_immutable_ && tags_.job != 0 &&
                       record->job_tag == tags_.job && is_proven_open(*record, ram_.region()) &&
                       mounts_.is_stable(row) && !may_be_racy(*record);
  if (needs_no_look) {
    mounts_.localise(row, record->stat);
    const bool is_changed =
        may_be_changed(base::hash_path(key)) ||
        may_be_changed(base::hash_inode(record->stat.device(), record->stat.inode));
    needs_no_look = !is_changed;
  }
  record->job_tag = needs_no_look ? tags_.job : 0;
  record->node_tag = row;
  const Verdict verdict = judge.judge(*record);
  // A refused file or block counts as a miss: a mount that invents inode numbers refuses almost all
  // of them, so the servers are asked less often. A refused listing counts as a hit, because other
  // mounts take listings as soon as they are stable.
  const bool is_of_use = verdict != Verdict::refused || judge.wanted() == RecordKind::directory;
  colds_[shared_kind(judge.wanted())].note(is_of_use);
  if (verdict == Verdict::outdated) {
    stats_.count(Counter::cluster_outdated);
    client_.remove(name, answer.cas());
  }
  return verdict == Verdict::taken;
}

// If the inode number differs, size and times do not show that the files are the same: a directory
// with files of equal sizes and times may have taken the place of this directory. If the mount
// invents inode numbers, the record may be right for other nodes, so it stays on the server.
Tier::Verdict ClusterTier::judge_version(const Record& record, const FileStat& stat) {
  if (!is_same_but_inode(record.stat, stat)) return Verdict::outdated;
  const bool is_same_inode = record.stat.inode == stat.inode;
  if (!is_same_inode && mounts_.are_inodes_true(record.node_tag, record.stat, stat))
    return Verdict::outdated;
  // Equal inode numbers of blocks are not noted, because several blocks of one file prove no more
  // than one block. An equal inode number 1 is not noted either: many mounts that invent inode
  // numbers give this number to their root.
  const bool proves_nothing = record.kind == RecordKind::block || stat.inode == 1;
  if (!is_same_inode || !proves_nothing) mounts_.note(record.node_tag, record.stat, stat);
  return is_same_inode ? Verdict::taken : Verdict::refused;
}

Tier::Verdict ClusterTier::judge_by_stat(const Record& record, const FileStat& stat) {
  if (record.data_size != stat.size) return Verdict::outdated;
  const Verdict version = judge_version(record, stat);
  return version == Verdict::taken && may_be_racy(record) ? Verdict::refused : version;
}

void ClusterTier::note_fetched(std::string_view key, const Pin& pin) {
  const auto lease = take_lease(base::hash_path(key));
  if (!lease) return client_.note_news();
  if (offers_.push(pin, lease->cas)) return client_.wake();
  give_back_lease(key, lease->cas);
}

void ClusterTier::note_block_fetched(std::string_view name, const FileKey& file, std::uint64_t at) {
  const auto lease = take_lease(base::hash_path(name));
  if (lease) {
    const std::uint64_t before = block_fetch_ns_.load(std::memory_order_relaxed);
    block_fetch_ns_.store(before == 0 ? lease->age_ns : (7 * before + lease->age_ns) / 8,
                          std::memory_order_relaxed);
  }
  const auto place = paths_.place_of(name);
  if (!lease || lease->cas == 0 || !place) return client_.note_news();
  const ClusterKey key = cluster_key(space_, *place, RecordKind::block);
  if (offers_.push_block({.file = file, .at = at, .key = key, .cas = lease->cas}))
    return client_.wake();
  client_.remove(key, lease->cas);
}

void ClusterTier::note_not_fetched(std::string_view key) {
  if (const auto lease = take_lease(base::hash_path(key)); lease && lease->cas != 0)
    give_back_lease(key, lease->cas);
}

bool ClusterTier::may_be_changed(std::uint64_t hash) const {
  const RegionHeader& header = ram_.region().header();
  const std::uint64_t word =
      header.cluster_changed[hash / 64 % k_changed_words].load(std::memory_order_seq_cst);
  return (word >> (hash % 64) & 1) != 0 ||
         header.cluster_distrusted.load(std::memory_order_seq_cst) != 0;
}

void ClusterTier::note_change(std::uint64_t hash) {
  ram_.region().header().cluster_changed[hash / 64 % k_changed_words].fetch_or(
      std::uint64_t{1} << (hash % 64), std::memory_order_seq_cst);
}

void ClusterTier::content_changed(std::string_view key, const FileStat* stat) {
  if (!key.empty()) note_change(base::hash_path(key));
  if (stat != nullptr) note_change(base::hash_inode(stat->device(), stat->inode));
}

void ClusterTier::tree_changed() {
  ram_.region().header().cluster_distrusted.store(1, std::memory_order_seq_cst);
}

base::TierStatus ClusterTier::status() const {
  const ClusterFigures figures = client_.figures();
  return {.capacity = figures.capacity,
          .used = figures.used,
          .entries = figures.entries,
          .is_there = true};
}

}  // namespace cube::cache
