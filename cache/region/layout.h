// The control part of the region: what lies where. All processes map it at addresses of their own,
// so it holds offsets and indices, never pointers. Another layout is another k_layout_version.
// Thread safety: constants and atomics; the plain fields of RegionHeader are written before the
// region has a name.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <type_traits>

#include "cache/base/lane.h"
#include "cache/base/process/process_id.h"
#include "cache/base/settings/server_row.h"
#include "cache/base/settings/stats.h"
#include "cache/base/settings/tier_kinds.h"

namespace cube::cache {

inline constexpr std::uint64_t k_region_magic = 0x6e6f696765723143ULL;  // "C1region"
inline constexpr std::uint32_t k_layout_version = 25;
// A smaller region has half or a quarter of them (RegionLayout::process_slots, job_rows).
inline constexpr std::uint32_t k_most_process_slots = 1024;
inline constexpr std::uint32_t k_most_job_rows = 1024;
inline constexpr std::uint32_t k_flight_slots = 4096;
inline constexpr std::uint32_t k_writer_stripes = 256;
inline constexpr std::uint32_t k_own_writers = 64;
inline constexpr std::uint32_t k_left_writers = 256;
inline constexpr std::uint32_t k_recent_misses = 4096;
inline constexpr std::uint32_t k_listing_slots = 64;
inline constexpr std::uint32_t k_most_listed_rows =
    32768;  // a smaller region has a quarter or a sixteenth of them
inline constexpr std::uint32_t k_views = 32;  // a record has a bit for each

inline constexpr std::uint32_t k_lead_locks =
    8;  // leaders that are stopped at the same time, and the one that leads
inline constexpr std::uint32_t k_changed_words =
    32;  // of 64 files of this node each, by their hashes

// A chunk is a piece of a large file (chunks.h): so many bytes, from a multiple of them on. All
// segments are multiples of it.
inline constexpr std::uint32_t k_chunk_bytes = 2 << 20;

// The index is made of tables that get their memory one after the other, as the ones before fill
// up.
inline constexpr std::uint32_t k_index_tables = 5;

// The begin of each table, in bytes from the start of the file; all follow from the two sizes.
struct RegionLayout {
  std::uint32_t segment_bytes = 0, segment_count = 0;
  std::uint32_t process_slots = 0, job_rows = 0, process_lanes = 0;
  std::uint32_t bucket_count[k_index_tables] = {};
  std::uint64_t jobs = 0, processes = 0, pins = 0, lanes = 0, segments = 0, writers = 0,
                own_writers = 0, left_writers = 0;
  std::uint64_t flights = 0, unread = 0, misses = 0, listings = 0, listed = 0, chunks = 0,
                chunk_buckets = 0, large_names = 0;
  std::uint64_t servers = 0;
  std::uint64_t index[k_index_tables] = {};
  std::uint64_t data = 0;  // the first segment; everything before it is control
  std::uint64_t file_bytes = 0;

  std::uint32_t listed_rows() const;
  std::uint32_t chunks_of_segment() const { return segment_bytes / k_chunk_bytes; }
  std::uint32_t chunk_count() const { return segment_count * chunks_of_segment(); }
  std::uint32_t chunk_bucket_count() const;
  std::uint32_t large_name_rows() const;
  friend bool operator==(const RegionLayout&, const RegionLayout&) = default;
};
// The largest region that fits into `bytes`; control tables included.
RegionLayout layout_for(std::uint64_t bytes);
// The one layout of these two sizes; all zero where no region has such.
RegionLayout layout_of(std::uint32_t segment_bytes, std::uint32_t segment_count);

// The status of a tier, as base::TierStatus has it.
struct TierRow {
  std::atomic<std::uint64_t> capacity, used, entries, unwritten, is_there;
};

struct RegionHeader {
  static constexpr std::uint32_t k_for_good = 1;
  static constexpr std::uint32_t k_to_prefetch = 1, k_to_look_at_room = 2;

  // Written last by the creator, before the file gets its name.
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t header_bytes;
  RegionLayout layout;
  std::uint64_t created_ns;
  // Guards attaching, detaching and reaping; robust, so that a holder's death frees it.
  pthread_mutex_t lifecycle;
  std::atomic<std::uint32_t> dead;  // the last process has taken the name away; under lifecycle
  std::atomic<std::uint32_t> slots_reached;  // no slot from this one on has ever been claimed
  std::atomic<std::uint32_t>
      kept;  // somebody wants it to stay when all have left (CUBESHIM_RAM_KEEP)
  std::atomic<std::uint64_t> reaped_ns;     // monotonic clock: when the dead were last looked for
  std::atomic<std::uint32_t> full_until;    // monotonic clock, seconds: no segment was left, try
                                            // again then; 0: there may be one
  std::atomic<std::uint32_t> index_tables;  // how many have memory; under lifecycle
  // The other users of the file system (room_for_others.h), monotonic clock, coarse: the last look,
  // and when memory was last given back to them; 0: never.
  std::atomic<std::uint64_t> room_looked_ns, gave_back_ns;
  std::atomic<std::uint32_t> free_hint;   // where to look for a free segment first
  std::atomic<std::uint64_t> records;     // published, stale ones included
  std::atomic<std::uint64_t> used_bytes;  // by records
  std::atomic<std::uint64_t>
      devices[8];  // of cached files, plus one; when all are taken, any device counts as known
  std::atomic<std::uint32_t> index_full;    // k_for_good: the last table is; else until when no
                                            // memory is asked for, as above; or 0
  std::atomic<std::uint64_t> name_changes;  // renames, removals and the like so far
  std::atomic<std::uint64_t> tree_changes;  // of these, such that change all below a directory
  std::atomic<std::uint64_t> file_changes;  // changes of files and of directories' entries so far
  // Names (metadata_room.h).
  std::atomic<std::uint64_t>
      metadata_bytes;  // that they take in segments that keep their records, dropped ones included
  std::atomic<std::uint64_t>
      metadata_filling;  // generation:32 | segment + 1:32 that is filled; 0: none yet
  std::atomic<std::uint64_t> metadata_full_until;  // base::boot_ns: no segment may be dropped, look
                                                   // again then; 0: there may be one
  std::atomic<std::uint32_t>
      has_fetched;  // 0: no fetch has begun yet, so there is nothing that a change matters to
  std::atomic<std::uint32_t>
      has_metadata;  // 0: no directory has been read yet for its listing to be kept
  std::atomic<std::uint32_t>
      left_writers;  // rows in use; more than there are, where a process ended in between
  std::atomic<std::uint32_t> left_order;  // the number of the newest of these rows
  // Large files (chunks.h).
  std::atomic<std::uint32_t> has_chunks;  // 0: there has never been one
  std::atomic<std::uint32_t>
      chunk_hint;  // the next large file is placed below this one; 0: below the ring
  std::atomic<std::uint64_t>
      chunks_full_until;  // monotonic clock, coarse: no place was free, look again then
  std::atomic<std::uint64_t> passing_order;  // the number of the newest chunk that passes
  std::atomic<std::uint32_t> passing_hand;   // where to look for the oldest first
  std::atomic<std::uint32_t> passing,
      most_passing;                           // how many chunks pass, as last counted; how many may
  std::atomic<std::uint32_t> chunks_written;  // futex: the tiers have got what a chunk had for them
  std::atomic<std::uint32_t> chunks_waiting;  // threads that wait for that
  std::atomic<std::uint64_t> blocks_whole;    // the sum of ChunkRow::wholes
  // Prefetching (lead_claim.h, ring.h). Its leader holds one of the mutexes, and the word says
  // which.
  pthread_mutex_t lead_locks[k_lead_locks];
  std::atomic<std::uint64_t> lead_word;
  std::atomic<std::uint32_t>
      threads_wanted;  // k_to_prefetch: every process offers to lead; k_to_look_at_room
  std::atomic<std::uint32_t> leads;  // how many processes have led so far
  std::atomic<std::uint32_t>
      lead_depth;  // fetches that the leader may have in flight now; for the report
  std::atomic<std::uint32_t>
      listed_reads;  // of files of listed directories, first ones (listings.h)
  std::atomic<std::uint32_t>
      ring_segments;  // how many of the last segments are the ring; 0: there is none
  std::atomic<std::uint32_t>
      ring_reach;  // how far in front of these others have joined it; 0: none has
  std::atomic<std::uint32_t> ring_wakeups;  // futex: room in the ring
  std::atomic<std::uint32_t> ring_waiting;  // the leader waits for room
  std::atomic<std::uint64_t>
      ring_filling;  // generation:32 | segment + 1:32 that programs' own fetches fill; 0: none yet
  // The tiers (tier_writer.h). Their writer holds the mutex, and says now and then that it writes.
  pthread_mutex_t disk_writer;
  std::atomic<std::uint64_t> disk_alive_ns;  // monotonic clock, coarse; 0: nothing is written
  std::atomic<std::uint32_t>
      disk_news;  // futex: a segment has got its last record, or a process another one
  std::atomic<std::uint32_t> disk_sleeps;  // the writer waits for that
  // The cluster (cluster_tier.h). The one process of the node that shares what it has holds the
  // mutex.
  pthread_mutex_t cluster_writer;
  std::atomic<std::uint32_t>
      cluster_distrusted;  // 1: names of directories have changed on this node
  std::atomic<std::uint64_t>
      cluster_changed[k_changed_words];  // bits by hash: files that this node has changed
  // pid:32 | pid namespace:32 of programs that have attached and were not reaped yet
  // (process_slots.h).
  static constexpr std::uint32_t k_attached = 64;
  std::atomic<std::uint64_t> attached[k_attached];
  // For the report.
  std::atomic<std::uint32_t> disk_told;  // its trouble was told
  TierRow tiers[base::k_tiers];
  std::uint64_t views[k_views];  // base::View::number of those who have attached; under lifecycle

  // Has a file of this device ever been cached? Says yes rather too often.
  bool knows_device(std::uint64_t device) const {
    for (const auto& known : devices) {
      const std::uint64_t word = known.load(std::memory_order_seq_cst);
      if (word == device + 1) return true;
      if (word == 0) return false;
    }
    return true;
  }
};

// How often a call had served files made kernel files: its name, cut to 16 bytes.
struct CallCount {
  std::atomic<std::uint64_t> name[2];
  std::atomic<std::uint64_t> count;
};
inline constexpr std::uint32_t k_call_counts =
    6;  // the rest is counted by Counter::materialized alone

// A job: the first process that loaded the shim, and its descendants. Behind the last row stands
// one more, whose `finished` is the sum over all jobs whose rows others have taken.
struct JobRow {
  base::ProcessId leader;               // pid 0: the row is free
  std::uint64_t last_used;              // order of claims
  std::uint64_t started_ns;             // base::boot_ns, when its first process attached
  std::atomic<std::uint32_t> reported;  // its first process has let go: nobody waits for the report
  std::atomic<std::uint32_t> told;      // its last report has been written
  base::Stats finished;                 // the sum over processes that are gone
  std::atomic<std::uint64_t> next_report_ns;                    // monotonic clock
  std::atomic<std::uint64_t> reported_requests, reported_hits;  // at the last report
  CallCount materialized_by[k_call_counts];
  // A file below a prefix that was opened by a name that no prefix has: 0 there is none, 1 it is
  // being written, 2 it is there.
  std::atomic<std::uint32_t> misspelled_state;
  char misspelled[252];
  std::atomic<std::uint64_t> listed;  // entries of its list that have been dealt with
  // base::boot_ns: a child ended that may have changed names without telling. Listings that were
  // verified before are revalidated.
  std::atomic<std::uint64_t> metadata_doubted_ns;
};

struct alignas(64) ProcessSlot {
  std::atomic<std::uint32_t> used;        // by a process that is alive, or was (life_lock.h)
  std::atomic<std::uint32_t> generation;  // of its claims
  std::uint32_t job;
  std::atomic<std::uint32_t> view;  // its bit in Record::views
  std::atomic<std::uint32_t> has_left_view;
  base::ProcessId process;
  // The waits of programs for the origin while files are prefetched: now, and so far.
  std::atomic<std::uint32_t> demand_waits;
  std::atomic<std::uint32_t> demand_fetches;
  std::atomic<std::uint64_t> demand_ns;
  // No lane of its threads (lanes.h) from this one on has been used; more where another process had
  // the slot before.
  std::atomic<std::uint32_t> lanes_reached;
  // Turns to fetch (single_flight.h) that it has begun or ended; and that number plus one when one
  // was waited for in vain.
  std::atomic<std::uint64_t> flights, stuck_at;
  base::Stats stats;
};

// What each hit writes, by the lane of its thread (lanes.h).
struct alignas(base::k_cache_line) LaneRow {
  static constexpr std::size_t k_hits_ram = 0, k_bytes_served = 1, k_calls_saved = 2,
                               k_counters = 3, k_pins = 10;
  static constexpr base::Counter k_counted[k_counters] = {
      base::Counter::hits_ram, base::Counter::bytes_served, base::Counter::calls_saved};
  std::atomic<std::uint64_t> counters[k_counters];
  std::atomic<std::uint32_t>
      pins[k_pins];  // segment:18 | pins on it:14; without pins, of no segment
};

// state:8 | owner slot:24 | generation:32, so that one compare-and-swap decides about a segment.
// chunks: it belongs to large files (chunks.h) and has no records.
enum class SegmentState : std::uint32_t {
  free = 0,
  open = 1,
  sealed = 2,
  tail = 3,
  evicting = 4,
  chunks = 5
};
inline constexpr std::uint32_t k_no_owner = 0xffffff;

struct SegmentRow {
  std::atomic<std::uint64_t> word;
  std::atomic<std::uint32_t> fill;        // bytes given out
  std::atomic<std::uint32_t> run_length;  // segments of the run that begins here
  std::atomic<std::uint32_t> records;     // published, stale ones included
  std::atomic<std::uint32_t> unread;      // of these, prefetched and not opened yet
  std::atomic<std::uint64_t> used_bytes;  // by records
  std::atomic<std::uint32_t>
      is_ring;  // the ring has leased it or it has joined, and for the ring it stays
  std::atomic<std::uint32_t> has_memory;  // until it is given back to others (room_for_others.h)
  std::atomic<std::uint32_t> fresh;       // confirmed records that are not from the disk
  std::atomic<std::uint32_t> flushed;     // so many of these are on the disk, or will not be
  std::atomic<std::uint32_t>
      is_mapped;  // a program has mapped pages of it, and a child may have inherited them
  std::atomic<std::uint32_t> is_names;  // it is for names (metadata_room.h)
};

// Files that are open for writing, by device and inode (writers.h).
struct alignas(64) WriterStripe {
  static constexpr std::uint32_t k_places = 7;
  std::atomic<std::uint64_t> writers[k_places];  // hash:48 | how often:16
  std::atomic<std::uint32_t> others;             // for which there was no place
  std::atomic<std::uint32_t> epoch;              // changes of files of this stripe so far
};

// A file that a process had open for writing when it ended or became another program (writers.h).
// The process is written under the lifecycle lock, while the row is free.
struct LeftWriter {
  // hash:48 | mapped:1 | order:14, so that no row is taken for its successor | shared:1; 0 is free
  std::atomic<std::uint64_t> word;
  std::atomic<std::uint64_t> pid, start_time,
      pid_namespace;  // base::ProcessId of the process that had it open
};

// One fetch under way: path tag:38 | its bytes come as a program reads them:1 | prefetch:1 |
// generation of the owner's claim:12 | owner slot + 1:12; 0 is free.
struct FlightSlot {
  std::atomic<std::uint64_t> word;
  std::atomic<std::uint32_t> wakeups;  // futex
  std::atomic<std::uint32_t> waiting;  // somebody may be
};

// A directory that a program reads file by file, on its way to the leader. state: 0 is free, 1 to
// be taken, else being written by the process of that slot + 2, which the slot's end takes back.
struct ListingSlot {
  std::atomic<std::uint32_t> state;
  std::uint32_t length;
  std::uint64_t hash;  // of the path: two may write where a process ends in the midst of it
  char path[1008];
};

// A directory that a program has listed (listings.h); its files are not counted, so a large one
// takes no more than a small one.
struct ListedRow {
  static constexpr std::uint32_t k_ways = 8;  // rows that a hash may take
  std::atomic<std::uint64_t> hash;            // 0 is free
  // KiB of its files: that programs have opened for the first time since; of these, those that had
  // been fetched ahead; that were fetched because of the listing.
  std::atomic<std::uint32_t> read_kib, early_kib, fetched_kib;
  std::atomic<std::uint32_t> files;  // in read_kib
  std::atomic<std::uint32_t> used;   // monotonic clock, seconds: the last listing or read
  std::atomic<std::uint32_t> lead;   // RegionHeader::leads + 1 of when it was posted; 0: it was not
};

// One bit for each place where a record may begin: prefetched, and not opened yet. A record takes
// more than this, so no two begin in the same.
inline constexpr std::uint64_t k_unread_grain = 256;

// A place for a chunk. `word` is as SegmentRow::word: free; sealed, it holds a chunk; evicting, its
// owner looks whether it may be another's; open, its owner writes another's name here.
struct alignas(64) ChunkRow {
  static constexpr std::uint32_t k_pages = k_chunk_bytes / 4096;
  std::atomic<std::uint64_t> word;
  std::atomic<std::uint64_t> path, version[2];  // FileKey
  std::atomic<std::uint32_t> number;            // of the chunk in its file
  std::atomic<std::uint32_t> is_mapped;  // by a program, or was: no other file may have this place
  std::atomic<std::uint32_t> unread;     // bits in `ahead`; more than there are after a death
  std::atomic<std::uint32_t> shown_to;   // the job of `shown`, by the low bits of JobRow::last_used
  std::atomic<std::uint64_t> present[k_pages / 64];  // a bit for each page of 4 KiB
  std::atomic<std::uint64_t>
      ahead[k_pages / 64];  // the same: it was fetched ahead, and nobody has read or mapped it yet
  std::atomic<std::uint64_t> passed;  // 0: it stays; else its order among those that pass
  std::atomic<std::uint64_t>
      offered[k_pages / 64];  // as `present`: not to be offered to the tiers any more
  std::atomic<std::uint32_t>
      to_offer;  // blocks that became whole since its pages were last offered to the tiers
  std::atomic<std::uint32_t> wholes;  // blocks that ever became whole at this place
  std::atomic<std::uint64_t>
      shared[k_pages / 64];  // as `present`: not to be sent to the cluster any more
  std::atomic<std::uint64_t>
      shown[k_pages / 64];  // as `present`: a mapping of the job `shown_to` shows or showed it
};

// The path and the stat of a large file, for who has its FileKey alone (large_names.h). Each row is
// written without a lock: a reader proves what it has read by the key.
struct alignas(64) LargeNameRow {
  static constexpr std::uint32_t k_words = 127;
  std::atomic<std::uint64_t> tag;  // FileKey::version[0] of the file, or 0
  std::atomic<std::uint64_t> words[k_words];
};

// The places of chunks, plus one, by the hash of file and number.
struct ChunkBucket {
  static constexpr std::uint32_t k_slots = 8;
  std::atomic<std::uint32_t> slots[k_slots];
};

struct alignas(64) IndexBucket {
  static constexpr int k_slots = 8;
  std::atomic<std::uint64_t> slots[k_slots];
};

static_assert(std::is_standard_layout_v<RegionHeader> && sizeof(RegionHeader) <= 4096);
static_assert(sizeof(ChunkRow) == 384 && sizeof(ChunkBucket) == 32 && sizeof(LargeNameRow) == 1024);
static_assert(sizeof(SegmentRow) == 56 && sizeof(IndexBucket) == 64 && sizeof(WriterStripe) == 64 &&
              sizeof(FlightSlot) == 16);
static_assert(sizeof(LeftWriter) == 32 && sizeof(LaneRow) == 64);
static_assert(sizeof(base::ServerRow) == 192);
static_assert(sizeof(ListingSlot) == 1024 && sizeof(ListedRow) == 32);

}  // namespace cube::cache
