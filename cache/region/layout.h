// The layout of the region's control part: the header, and the start of each table. layout_rows.h
// defines the rows of the tables. Each process maps the region at its own address, so the control
// part holds offsets and indices, never pointers. Each change of the layout needs a new
// k_layout_version. Thread safety: constants and atomics; the plain fields of RegionHeader are
// written before the region has a name.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <type_traits>

#include "cache/base/settings/tier_kinds.h"
#include "cache/region/layout_rows.h"

namespace cube::cache {

inline constexpr std::uint64_t k_region_magic = 0x6e6f696765723143ULL;  // "C1region"
inline constexpr std::uint32_t k_layout_version = 33;
// The numbers of process slots and of job rows in a large region. A smaller region has half or a
// quarter of them (RegionLayout::process_slots, job_rows).
inline constexpr std::uint32_t k_most_process_slots = 1024;
inline constexpr std::uint32_t k_most_job_rows = 1024;
inline constexpr std::uint32_t k_flight_slots = 4096;
inline constexpr std::uint32_t k_writer_stripes = 256;
inline constexpr std::uint32_t k_own_writers = 64;
inline constexpr std::uint32_t k_left_writers = 256;
inline constexpr std::uint32_t k_recent_misses = 4096;
// The number of rows for last changes. A region with fewer than four segments has a sixteenth of
// this number.
inline constexpr std::uint32_t k_most_last_changes = 2048;
inline constexpr std::uint32_t k_listing_slots = 64;
// The number of rows for listed directories in a large region. A smaller region has a quarter or a
// sixteenth of this number.
inline constexpr std::uint32_t k_most_listed_rows = 32768;
// The number of views that a region can have. A record has one bit for each view.
inline constexpr std::uint32_t k_views = 32;

// One lock is for the current leader. The other locks are for previous leaders that are stopped.
inline constexpr std::uint32_t k_lead_locks = 8;
// The number of words in RegionHeader::cluster_changed. Each bit of these words represents all
// files of this node whose hash selects the bit.
inline constexpr std::uint32_t k_changed_words = 32;

// The index consists of tables. A table gets its memory when the earlier tables are full.
inline constexpr std::uint32_t k_index_tables = 5;

// The start of each table, in bytes from the start of the file. The two sizes (segment_bytes,
// segment_count) determine all other fields.
struct RegionLayout {
  std::uint32_t segment_bytes = 0, segment_count = 0;
  std::uint32_t process_slots = 0, job_rows = 0, process_lanes = 0;
  std::uint32_t bucket_count[k_index_tables] = {};
  std::uint64_t jobs = 0, processes = 0, pins = 0, lanes = 0, segments = 0, writers = 0,
                own_writers = 0, left_writers = 0, last_changes = 0;
  std::uint64_t flights = 0, unread = 0, misses = 0, listings = 0, listed = 0, chunks = 0,
                chunk_buckets = 0, large_paths = 0;
  std::uint64_t servers = 0, mail = 0, unserved = 0;
  std::uint64_t index[k_index_tables] = {};
  // The start of the first segment. Everything before it is the control part.
  std::uint64_t data = 0;
  std::uint64_t file_bytes = 0;

  std::uint32_t listed_rows() const;
  std::uint32_t last_change_rows() const;
  std::uint32_t chunks_of_segment() const { return segment_bytes / k_chunk_bytes; }
  std::uint32_t chunk_count() const { return segment_count * chunks_of_segment(); }
  std::uint32_t chunk_bucket_count() const;
  std::uint32_t large_path_rows() const;
  std::uint32_t mail_rows() const;
  friend bool operator==(const RegionLayout&, const RegionLayout&) = default;
};
// The largest region that fits into `bytes`, control tables included.
RegionLayout layout_for(std::uint64_t bytes);
// The layout that these two sizes determine. All zero: no region can have these sizes.
RegionLayout layout_of(std::uint32_t segment_bytes, std::uint32_t segment_count);

struct RegionHeader {
  static constexpr std::uint32_t k_for_good = 1;
  static constexpr std::uint32_t k_to_prefetch = 1, k_to_look_at_room = 2;

  // The creator of the region writes this field last, before the file gets its name.
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t header_bytes;
  RegionLayout layout;
  std::uint64_t created_ns;
  // base::boot_ns of the last change that could not be marked at its record. Everything that was
  // verified earlier must be revalidated.
  std::atomic<std::uint64_t> doubted_ns;
  // Guards attaching, detaching and reaping. The mutex is robust, so the death of its holder frees
  // it.
  pthread_mutex_t lifecycle;
  // Set when the last process has removed the region's name. Guarded by lifecycle.
  std::atomic<std::uint32_t> dead;
  // All slots that have ever been claimed are below this number.
  std::atomic<std::uint32_t> slots_reached;
  // Set if a process wants the region to stay when all processes have left (CUBESHIM_RAM_KEEP).
  std::atomic<std::uint32_t> kept;
  // Monotonic clock: the time of the last search for dead processes.
  std::atomic<std::uint64_t> reaped_ns;
  // The time of the next search for a segment, if the last search found none (monotonic clock,
  // seconds). 0: a search can begin now.
  std::atomic<std::uint32_t> full_until;
  // How many tables of the index have memory. Only a process that holds lifecycle changes this
  // number.
  std::atomic<std::uint32_t> index_tables;

  // For the other users of the file system (room_for_others.h): the times at which their room was
  // last checked, and at which memory was last given back to them. Coarse monotonic clock; 0:
  // never.
  std::atomic<std::uint64_t> room_looked_ns, gave_back_ns;
  // The segment at which the search for a free segment starts.
  std::atomic<std::uint32_t> free_hint;
  // 0: there has never been a record whose path contains a link.
  std::atomic<std::uint32_t> has_link_paths;
  // Published records, stale ones included.
  std::atomic<std::uint64_t> records;
  // Bytes that records use.
  std::atomic<std::uint64_t> used_bytes;
  // The devices of cached files, each plus one. If all entries are taken, any device counts as
  // known.
  std::atomic<std::uint64_t> devices[8];
  // k_for_good: the last table of the index is full. Any other value is a time (monotonic clock,
  // seconds) until which the index requests no memory. 0: the index can request memory now.
  std::atomic<std::uint32_t> index_full;
  // How many renames, removals and similar changes there have been.
  std::atomic<std::uint64_t> name_changes;
  // The part of name_changes that affects everything below a directory, or an unknown file.
  std::atomic<std::uint64_t> tree_changes;
  // How many changes of files and of directories' entries there have been.
  std::atomic<std::uint64_t> file_changes;

  // Metadata (metadata_room.h).

  // The size of all metadata in segments that keep their records. Includes dropped records.
  std::atomic<std::uint64_t> metadata_bytes;
  // generation:32 | segment + 1:32 of the segment that is being filled; 0: none yet.
  std::atomic<std::uint64_t> metadata_filling;
  // The time of the next check for a segment to drop, if the last check found none (base::boot_ns).
  // 0: a check can begin now.
  std::atomic<std::uint64_t> metadata_full_until;
  // 0: no fetch has begun yet, so changes do not matter.
  std::atomic<std::uint32_t> has_fetched;
  // 0: no process has read a directory yet in order to cache its listing.
  std::atomic<std::uint32_t> has_metadata;
  // The number of LeftWriter rows in use. This number is too high if a process died between two
  // steps.
  std::atomic<std::uint32_t> left_writers;
  // The order number of the newest LeftWriter row in use.
  std::atomic<std::uint32_t> left_order;

  // Large files (chunks.h).

  // 0: there has never been a chunk.
  std::atomic<std::uint32_t> has_chunks;
  // The chunks of the next large file are placed below this segment. 0: below the ring.
  std::atomic<std::uint32_t> chunk_hint;
  // The time of the next search for a place, if the last search found none (coarse monotonic
  // clock).
  std::atomic<std::uint64_t> chunks_full_until;
  // The order number of the newest chunk that passes.
  std::atomic<std::uint64_t> passing_order;
  // The place at which the next search for the oldest chunk that passes starts.
  std::atomic<std::uint32_t> passing_hand;
  // How many chunks pass, according to the last count, and how many chunks may pass.
  std::atomic<std::uint32_t> passing, most_passing;
  // Futex: changes when the tiers have taken a chunk's blocks.
  std::atomic<std::uint32_t> chunks_written;
  // The number of threads that wait for chunks_written to change.
  std::atomic<std::uint32_t> chunks_waiting;
  // The sum of ChunkRow::wholes.
  std::atomic<std::uint64_t> blocks_whole;

  // Prefetching (lead_claim.h, ring.h). The leader holds one of these mutexes. lead_word contains
  // the index of the mutex that it holds.
  pthread_mutex_t lead_locks[k_lead_locks];
  std::atomic<std::uint64_t> lead_word;
  // Tasks for the library's threads, as bits. k_to_prefetch: offer to lead the prefetching.
  // k_to_look_at_room: check the room for other programs.
  std::atomic<std::uint32_t> threads_wanted;
  // How many times a process has begun to lead.
  std::atomic<std::uint32_t> leads;
  // How many fetches the leader may have in flight now; for the report.
  std::atomic<std::uint32_t> lead_depth;
  // The number of first reads of files of listed directories (listings.h).
  std::atomic<std::uint32_t> listed_reads;
  // How many of the region's last segments form the ring. 0: there is no ring.
  std::atomic<std::uint32_t> ring_segments;
  // The distance in segments between the ring's own start and the lowest segment that has joined
  // the ring. 0: no segment below the ring's own start has joined.
  std::atomic<std::uint32_t> ring_reach;
  // Futex: changes when the ring gets room.
  std::atomic<std::uint32_t> ring_wakeups;
  // Set while the leader waits for room in the ring.
  std::atomic<std::uint32_t> ring_waiting;
  // generation:32 | segment + 1:32 of the segment that programs' own fetches fill; 0: none yet.
  std::atomic<std::uint64_t> ring_filling;

  // The tiers (tier_writer.h). The process that writes to the tiers holds the mutex, and reports
  // from time to time that it is still writing.
  pthread_mutex_t disk_writer;
  // Coarse monotonic clock: the time of the writer's last report; 0: no process writes.
  std::atomic<std::uint64_t> disk_alive_ns;
  // Futex: changes when a segment has received its last record, or a process has leased another
  // segment.
  std::atomic<std::uint32_t> disk_news;
  // Set while the writer waits for disk_news to change.
  std::atomic<std::uint32_t> disk_sleeps;

  // The cluster (cluster_tier.h). Only one process shares the node's data with other nodes: the
  // process that holds this mutex.
  pthread_mutex_t cluster_writer;
  // 1: paths of directories have changed on this node.
  std::atomic<std::uint32_t> cluster_distrusted;
  // The files that this node has changed. The hash of a file selects the file's bit.
  std::atomic<std::uint64_t> cluster_changed[k_changed_words];
  // pid:32 | pid namespace:32 of programs that have attached and have not been reaped yet
  // (process_slots.h).
  static constexpr std::uint32_t k_attached = 64;
  std::atomic<std::uint64_t> attached[k_attached];

  // Requests to gateways (mailbox.h). A gateway holds the mutex while it claims a GatewayRow.
  pthread_mutex_t gateway_lock;
  static constexpr std::uint32_t k_gateways = 8;
  GatewayRow gateways[k_gateways];
  // Futexes: how many requests have been posted, and how many rows have become free.
  std::atomic<std::uint32_t> mail_news, mail_freed;
  // Set if a process may be waiting for a free row.
  std::atomic<std::uint32_t> mail_waiting;

  // Fields for the report.

  // Set when the disk's failure has been reported.
  std::atomic<std::uint32_t> disk_told;
  TierRow tiers[base::k_tiers];
  // base::View::number of each view whose processes have attached. Guarded by lifecycle.
  std::uint64_t views[k_views];

  // Whether a file of this device has ever been cached. May wrongly return true.
  bool knows_device(std::uint64_t device) const {
    for (const auto& known : devices) {
      const std::uint64_t word = known.load(std::memory_order_seq_cst);
      if (word == device + 1) return true;
      if (word == 0) return false;
    }
    return true;
  }
};

static_assert(std::is_standard_layout_v<RegionHeader> && sizeof(RegionHeader) <= 4096);

}  // namespace cube::cache
