// Finds the records that this node has read and that other nodes may want. Files for which this
// process has a lease come first, as soon as they are fetched, because other nodes may wait for
// them. After that, the leader walks the segments of the region, and finds records that it has not
// offered yet. A record is put off if its server is unreachable or full, or while it is unknown
// whether all users may search its directories. The leader then tries again after a while.
// Invariants: a record is pinned while it is offered. Until its segment is reclaimed, a record is
// offered only once, except after it was put off. A record from the cluster is never offered.
// Thread safety: any thread may call push and push_block. Only the client's thread may call the
// other functions.
#pragma once

#include <atomic>
#include <optional>
#include <vector>

#include "cache/region/life/robust_lock.h"
#include "cache/region/ram/ram_tier.h"
#include "cache/tier/cluster/cluster_client.h"
#include "cache/tier/shared/cluster_blocks.h"
#include "cache/tier/shared/cluster_path_rights.h"
#include "cache/tier/shared/cluster_paths.h"
#include "cache/tier/shared/cluster_record.h"

namespace cube::cache {

class ClusterOffers final : public OfferSource {
 public:
  struct Options {
    std::string space;  // CUBESHIM_CLUSTER_NAME
    ClusterTags tags;
    bool with_private = false;
    std::size_t tier = 0;          // an index into base::k_tier_kinds
    std::uint64_t block = 0;       // size of a block of a large file; 0: there are none
    std::uint64_t most_bytes = 0;  // larger records are not offered
  };
  ClusterOffers(RamTier& ram, const ClusterPaths& paths, ClusterClient& client, Options options);

  // Adds a record for which this process has a lease. Returns false if too many records are already
  // waiting; the leader will find the record later.
  bool push(const Pin& pin, std::uint64_t lease_cas);
  // Like push, but for a block of a large file. The bytes are looked up when the block is offered.
  struct LeasedBlock {
    FileKey file;
    std::uint64_t at = 0;  // the offset of its first byte
    ClusterKey key;
    std::uint64_t cas = 0;
  };
  bool push_block(const LeasedBlock& block);
  // Whether a block of a file with this stat will probably be shared.
  bool may_share_block_of(const FileStat& stat) const;
  // Call it in a forked child. Forgets the pins, which belong to the parent.
  void forget();

  bool next(ClusterOffer& offer, std::uint64_t now_ns, bool only_leased) override;
  void end_offer(ClusterOffer& offer, OfferEnd end) override;
  bool is_leader() const override { return lock_.has_value(); }
  void note_figures(const ClusterFigures& figures) override;
  void leave() override;

 private:
  struct Pushed {
    enum State : std::uint32_t { free, busy, full };
    std::atomic<std::uint32_t> state{free};  // the release of `full` pairs with the acquire of the
                                             // thread that takes the row
    Pin::Kept pin;
    std::uint64_t cas = 0;
    std::uint64_t until_ns = 0;  // the time at which the lease ends
  };
  struct PushedBlock {
    std::atomic<std::uint32_t> state{Pushed::free};
    LeasedBlock block;
    std::uint64_t until_ns = 0;
  };
  // `yes`: the record may be sent. `never`: the record must not be shared. `later`: it is not known
  // yet whether the record may be shared.
  enum class Ready : std::uint8_t { yes, never, later };
  struct Note {
    Note() = default;
    explicit Note(std::uint32_t of) : generation(of) {}
    std::uint32_t generation = 0;        // the segment's generation: a reclaimed segment has a new
                                         // one
    std::uint32_t seen = 0;              // SegmentRow::records when all records were last examined
    std::uint64_t next_look_ns = 0;      // when to examine a segment with unconfirmed records again
    std::uint64_t retry_ns = 0;          // when to retry records that were put off; 0: there are
                                         // none
    unsigned retries = 0;                // in a row
    std::vector<std::uint64_t> offered;  // offsets, sorted
  };
  // The record that is being offered.
  struct Place {
    bool is_of_region = false;
    std::uint32_t segment = 0, generation = 0;
    std::uint64_t offset = 0;
  };

  // Prepares the offer of a record. Takes over the pin if the result is `yes`.
  Ready prepare(ClusterOffer& offer, Pin& pin, const Record& record, std::uint64_t cas,
                std::uint64_t now_ns);
  Ready prepare_block(ClusterOffer& offer, const ClusterBlocks::Found& found, std::uint64_t now_ns);
  bool next_block(ClusterOffer& offer, std::uint64_t now_ns);
  bool next_pushed_block(ClusterOffer& offer, std::uint64_t now_ns);
  // Whether all users may search the directories that lead to the file. Only then may the file be
  // shared, because all users can read it from the servers. `is_physical`: the path contains no
  // links.
  Ready may_be_reached(std::string_view path, bool is_physical, std::uint64_t now_ns);
  void fill(ClusterOffer& offer, const ClusterPaths::Place& place, const ClusterContent& content,
            const std::byte* data, const ClusterTags& tags);
  bool next_pushed(ClusterOffer& offer, std::uint64_t now_ns);
  bool next_of_region(ClusterOffer& offer, std::uint64_t now_ns);
  bool look_at(std::uint32_t segment, std::uint64_t now_ns);
  bool is_wanted(const Record& record) const;
  // Makes the walk examine the segment again after some time.
  static void note_put_off(Note& note, std::uint64_t now_ns);
  void put_off(const Place& place, std::uint64_t now_ns);
  void try_to_lead(std::uint64_t now_ns);

  RamTier& ram_;
  const ClusterPaths& paths_;
  ClusterClient& client_;
  const Options options_;
  static constexpr std::size_t k_most_pushed = 32;
  Pushed pushed_[k_most_pushed];
  std::size_t next_pushed_ = 0;
  static constexpr std::size_t k_most_pushed_blocks = 16;
  PushedBlock pushed_blocks_[k_most_pushed_blocks];
  std::size_t next_pushed_block_ = 0;
  std::atomic<std::uint64_t> no_blocks_until_ns_{
      0};    // base::coarse_monotonic_ns: until then, may_share_block_of() returns false
  Pin pin_;  // the pin on the record that is being offered
  Place place_;
  ClusterHead head_;
  std::optional<RobustLock> lock_;
  std::uint64_t next_try_ns_ = 0;
  std::vector<Note> notes_;  // a note for each segment, while this process leads
  std::uint32_t segment_ = 0, generation_ = 0;
  std::vector<std::uint64_t> offsets_;  // the offsets of this segment's records that are still to
                                        // be offered, in reverse order
  ClusterBlocks blocks_, leased_block_;
  ClusterPathRights path_rights_{client_};
};

}  // namespace cube::cache
