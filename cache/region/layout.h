// The layout of the region's control part. Each process maps the region at an address of its own,
// so it holds offsets and indices, never pointers. A change of the layout needs another
// k_layout_version. Thread safety: constants and atomics; the plain fields of RegionHeader are
// written before the region has a name.
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
#include "cache/region/noted_path.h"

namespace cube::cache {

inline constexpr std::uint64_t k_region_magic = 0x6e6f696765723143ULL;  // "C1region"
inline constexpr std::uint32_t k_layout_version = 28;
// The maxima; a smaller region has half or a quarter of them (RegionLayout::process_slots,
// job_rows).
inline constexpr std::uint32_t k_most_process_slots = 1024;
inline constexpr std::uint32_t k_most_job_rows = 1024;
inline constexpr std::uint32_t k_flight_slots = 4096;
inline constexpr std::uint32_t k_writer_stripes = 256;
inline constexpr std::uint32_t k_own_writers = 64;
inline constexpr std::uint32_t k_left_writers = 256;
inline constexpr std::uint32_t k_recent_misses = 4096;
inline constexpr std::uint32_t k_listing_slots = 64;
// A smaller region has a quarter or a sixteenth of them.
inline constexpr std::uint32_t k_most_listed_rows = 32768;
// A record has a bit for each.
inline constexpr std::uint32_t k_views = 32;

// One for the current leader, the others for former leaders that are stopped.
inline constexpr std::uint32_t k_lead_locks = 8;
// Each word has 64 bits; a bit stands for the files of this node that have its hash.
inline constexpr std::uint32_t k_changed_words = 32;

// A chunk is a piece of a large file (chunks.h): k_chunk_bytes from a multiple of k_chunk_bytes on.
// Every segment size is a multiple of it.
inline constexpr std::uint32_t k_chunk_bytes = 2 << 20;

// The index consists of tables that get their memory one after another, as the earlier ones fill
// up.
inline constexpr std::uint32_t k_index_tables = 5;

// The start of each table, in bytes from the start of the file. The two sizes (segment_bytes,
// segment_count) determine all of them.
struct RegionLayout {
  std::uint32_t segment_bytes = 0, segment_count = 0;
  std::uint32_t process_slots = 0, job_rows = 0, process_lanes = 0;
  std::uint32_t bucket_count[k_index_tables] = {};
  std::uint64_t jobs = 0, processes = 0, pins = 0, lanes = 0, segments = 0, writers = 0,
                own_writers = 0, left_writers = 0;
  std::uint64_t flights = 0, unread = 0, misses = 0, listings = 0, listed = 0, chunks = 0,
                chunk_buckets = 0, large_paths = 0;
  std::uint64_t servers = 0, mail = 0, unserved = 0;
  std::uint64_t index[k_index_tables] = {};
  // The first segment; everything before it is control.
  std::uint64_t data = 0;
  std::uint64_t file_bytes = 0;

  std::uint32_t listed_rows() const;
  std::uint32_t chunks_of_segment() const { return segment_bytes / k_chunk_bytes; }
  std::uint32_t chunk_count() const { return segment_count * chunks_of_segment(); }
  std::uint32_t chunk_bucket_count() const;
  std::uint32_t large_path_rows() const;
  std::uint32_t mail_rows() const;
  friend bool operator==(const RegionLayout&, const RegionLayout&) = default;
};
// The largest region that fits into `bytes`, control tables included.
RegionLayout layout_for(std::uint64_t bytes);
// The only layout of these two sizes; all zero if no region has them.
RegionLayout layout_of(std::uint32_t segment_bytes, std::uint32_t segment_count);

// The status of a tier, as in base::TierStatus.
struct TierRow {
  std::atomic<std::uint64_t> capacity, used, entries, unwritten, is_there;
};

// A gateway (mailbox.h).
struct GatewayRow {
  // The mark of the store and of the credentials that it uses (bucket_mount.h).
  std::atomic<std::uint64_t> store;
  // generation:32 | slot + 1:32 of its process; 0: the row is free.
  std::atomic<std::uint64_t> process;
  // Coarse monotonic clock: a process has started a gateway, and the others wait for it until then.
  // It belongs to the stores whose mark, modulo k_gateways, is this row's number.
  std::atomic<std::uint64_t> due_ns;
  // A bit for each error (modulo 32) that this gateway has answered and an asker has told the user.
  std::atomic<std::uint32_t> told;
  // A part of the name of its socket. It is random, so that no other user takes the name first.
  std::atomic<std::uint32_t> socket;
  // Since it began: attempts that the store has answered, those that were repeated, bytes of
  // bodies, and the sum of the times to the first byte.
  std::atomic<std::uint64_t> answers, retries, bytes, first_byte_ns;
  // Requests in flight, and how many may be.
  std::atomic<std::uint32_t> in_flight, most_in_flight;
};

struct RegionHeader {
  static constexpr std::uint32_t k_for_good = 1;
  static constexpr std::uint32_t k_to_prefetch = 1, k_to_look_at_room = 2;

  // The creator writes it last, before the file gets its name.
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t header_bytes;
  RegionLayout layout;
  std::uint64_t created_ns;
  // Guards attaching, detaching and reaping. Robust, so its holder's death frees it.
  pthread_mutex_t lifecycle;
  // The last process has removed the name. Guarded by lifecycle.
  std::atomic<std::uint32_t> dead;
  // No slot from this one on has ever been claimed.
  std::atomic<std::uint32_t> slots_reached;
  // A process wants the region to stay when all have left (CUBESHIM_RAM_KEEP).
  std::atomic<std::uint32_t> kept;
  // Monotonic clock: when dead processes were last searched for.
  std::atomic<std::uint64_t> reaped_ns;
  // Monotonic clock, seconds: no segment was left, try again then; 0: there may be one.
  std::atomic<std::uint32_t> full_until;
  // How many tables have memory. Guarded by lifecycle.
  std::atomic<std::uint32_t> index_tables;

  // The other users of the file system (room_for_others.h): when their room was last checked, and
  // when memory was last given back to them. Coarse monotonic clock; 0: never.
  std::atomic<std::uint64_t> room_looked_ns, gave_back_ns;
  // The segment at which the search for a free one starts.
  std::atomic<std::uint32_t> free_hint;
  // Published records, stale ones included.
  std::atomic<std::uint64_t> records;
  // Bytes that records use.
  std::atomic<std::uint64_t> used_bytes;
  // Devices of cached files, plus one. If all entries are taken, any device counts as known.
  std::atomic<std::uint64_t> devices[8];
  // k_for_good: the last table is full. Otherwise the second of the monotonic clock until which no
  // memory is asked for, or 0.
  std::atomic<std::uint32_t> index_full;
  // Renames, removals and the like so far.
  std::atomic<std::uint64_t> name_changes;
  // The name_changes that affect everything below a directory.
  std::atomic<std::uint64_t> tree_changes;
  // Changes of files and of directories' entries so far.
  std::atomic<std::uint64_t> file_changes;

  // Metadata (metadata_room.h).

  // Bytes of metadata in segments that keep their records, dropped records included.
  std::atomic<std::uint64_t> metadata_bytes;
  // generation:32 | segment + 1:32 of the segment that is being filled; 0: none yet.
  std::atomic<std::uint64_t> metadata_filling;
  // base::boot_ns: no segment may be dropped, check again then; 0: there may be one.
  std::atomic<std::uint64_t> metadata_full_until;
  // 0: no fetch has begun yet, so no change matters.
  std::atomic<std::uint32_t> has_fetched;
  // 0: no directory has been read yet for its listing to be kept.
  std::atomic<std::uint32_t> has_metadata;
  // Rows in use. Too high if a process ended between two steps.
  std::atomic<std::uint32_t> left_writers;
  // The order of the newest of these rows.
  std::atomic<std::uint32_t> left_order;

  // Large files (chunks.h).

  // 0: there has never been a chunk.
  std::atomic<std::uint32_t> has_chunks;
  // The next large file is placed below this segment; 0: below the ring.
  std::atomic<std::uint32_t> chunk_hint;
  // Coarse monotonic clock: no place was free, check again then.
  std::atomic<std::uint64_t> chunks_full_until;
  // The order of the newest chunk that passes.
  std::atomic<std::uint64_t> passing_order;
  // The place at which the search for the oldest starts.
  std::atomic<std::uint32_t> passing_hand;
  // How many chunks pass, as last counted, and how many may.
  std::atomic<std::uint32_t> passing, most_passing;
  // Futex: the tiers have got what a chunk had for them.
  std::atomic<std::uint32_t> chunks_written;
  // Threads that wait for that.
  std::atomic<std::uint32_t> chunks_waiting;
  // The sum of ChunkRow::wholes.
  std::atomic<std::uint64_t> blocks_whole;

  // Prefetching (lead_claim.h, ring.h). The leader holds one of the mutexes, and the word says
  // which.
  pthread_mutex_t lead_locks[k_lead_locks];
  std::atomic<std::uint64_t> lead_word;
  // k_to_prefetch: every process offers to lead. k_to_look_at_room: the library's threads check the
  // room for others.
  std::atomic<std::uint32_t> threads_wanted;
  // How many times a process has begun to lead.
  std::atomic<std::uint32_t> leads;
  // Fetches that the leader may have in flight now; for the report.
  std::atomic<std::uint32_t> lead_depth;
  // First reads of files of listed directories (listings.h).
  std::atomic<std::uint32_t> listed_reads;
  // The ring is this many of the last segments; 0: there is none.
  std::atomic<std::uint32_t> ring_segments;
  // How far below the ring's own place other segments have joined it; 0: none has.
  std::atomic<std::uint32_t> ring_reach;
  // Futex: there is room in the ring.
  std::atomic<std::uint32_t> ring_wakeups;
  // The leader waits for room.
  std::atomic<std::uint32_t> ring_waiting;
  // generation:32 | segment + 1:32 of the segment that programs' own fetches fill; 0: none yet.
  std::atomic<std::uint64_t> ring_filling;

  // The tiers (tier_writer.h). Their writer holds the mutex, and reports now and then that it
  // writes.
  pthread_mutex_t disk_writer;
  // Coarse monotonic clock; 0: nothing is written.
  std::atomic<std::uint64_t> disk_alive_ns;
  // Futex: a segment has got its last record, or a process has leased another segment.
  std::atomic<std::uint32_t> disk_news;
  // The writer waits for that.
  std::atomic<std::uint32_t> disk_sleeps;

  // The cluster (cluster_tier.h). The node's only process that shares the node's data holds the
  // mutex.
  pthread_mutex_t cluster_writer;
  // 1: paths of directories have changed on this node.
  std::atomic<std::uint32_t> cluster_distrusted;
  // Bits by hash: files that this node has changed.
  std::atomic<std::uint64_t> cluster_changed[k_changed_words];
  // pid:32 | pid namespace:32 of programs that have attached and have not been reaped yet
  // (process_slots.h).
  static constexpr std::uint32_t k_attached = 64;
  std::atomic<std::uint64_t> attached[k_attached];

  // Requests to gateways (mailbox.h). A gateway holds the mutex while it claims a row.
  pthread_mutex_t gateway_lock;
  static constexpr std::uint32_t k_gateways = 8;
  GatewayRow gateways[k_gateways];
  // Futexes: how many requests have been posted, and how many rows have become free.
  std::atomic<std::uint32_t> mail_news, mail_freed;
  // An asker may be waiting for a free row.
  std::atomic<std::uint32_t> mail_waiting;

  // For the report.

  // The disk's trouble has been reported.
  std::atomic<std::uint32_t> disk_told;
  TierRow tiers[base::k_tiers];
  // base::View::number of the views that have attached. Guarded by lifecycle.
  std::uint64_t views[k_views];

  // True if a file of this device has ever been cached. May be true wrongly.
  bool knows_device(std::uint64_t device) const {
    for (const auto& known : devices) {
      const std::uint64_t word = known.load(std::memory_order_seq_cst);
      if (word == device + 1) return true;
      if (word == 0) return false;
    }
    return true;
  }
};

// How often one call materialized served files. The call's name is cut to 16 bytes.
struct CallCount {
  std::atomic<std::uint64_t> name[2];
  std::atomic<std::uint64_t> count;
};
// Only Counter::materialized counts further calls.
inline constexpr std::uint32_t k_call_counts = 6;

// The counters of opens that were not served follow each other.
inline constexpr std::size_t k_unserved_reasons =
    static_cast<std::size_t>(base::Counter::bypassed_error) -
    static_cast<std::size_t>(base::Counter::bypassed_size) + 1;

// The first file that was not served for each reason (unserved_paths.h).
struct UnservedRow {
  // JobRow::last_used of the job; 0: the row is free.
  std::atomic<std::uint64_t> job;
  NotedPath<128> first[k_unserved_reasons];
};
inline constexpr std::uint32_t k_unserved_rows = 16;

// A job: the first process that loaded the shim, and its descendants. One more row follows the last
// one; its `finished` is the sum over all jobs whose rows other jobs have taken.
struct JobRow {
  // pid 0: the row is free.
  base::ProcessId leader;
  // The order in which rows were claimed.
  std::uint64_t last_used;
  // base::boot_ns when its first process attached.
  std::uint64_t started_ns;
  // The job's first process has detached: nobody waits for the report.
  std::atomic<std::uint32_t> reported;
  // The job's last report has been written.
  std::atomic<std::uint32_t> told;
  // The sum over processes that are gone.
  base::Stats finished;
  // Monotonic clock.
  std::atomic<std::uint64_t> next_report_ns;
  // The counts at the last report.
  std::atomic<std::uint64_t> reported_requests, reported_hits;
  CallCount materialized_by[k_call_counts];
  // A file below a prefix that was opened by a path that no prefix covers.
  NotedPath<256> misspelled;
  // Entries of its list that have been handled.
  std::atomic<std::uint64_t> listed;
  // base::boot_ns: a child ended that may have changed paths without reporting it. Listings that
  // were verified earlier are revalidated.
  std::atomic<std::uint64_t> metadata_doubted_ns;
};

struct alignas(64) ProcessSlot {
  // A process that is alive, or was, uses the slot (life_lock.h).
  std::atomic<std::uint32_t> used;
  // Counts the claims of this slot.
  std::atomic<std::uint32_t> generation;
  std::uint32_t job;
  // The bit of the process's view in Record::views.
  std::atomic<std::uint32_t> view;
  std::atomic<std::uint32_t> has_left_view;
  // No lane of the slot's threads (lanes.h) from this one on has been used. Too high if another
  // process had the slot earlier.
  std::atomic<std::uint32_t> lanes_reached;
  base::ProcessId process;
  // Waits of programs for the origin while files are prefetched: in progress, and finished so far
  // with their total time.
  std::atomic<std::uint32_t> demand_waits;
  std::atomic<std::uint32_t> demand_fetches;
  std::atomic<std::uint64_t> demand_ns;
  // `flights`: how many flights (single_flight.h) it has begun or ended. `stuck_at`: that count
  // plus one when a process waited for a flight in vain.
  std::atomic<std::uint64_t> flights, stuck_at;
  base::Stats stats;
};

// The words that each hit writes, by the lane of its thread (lanes.h).
struct alignas(base::k_cache_line) LaneRow {
  static constexpr std::size_t k_hits_ram = 0, k_bytes_served = 1, k_calls_saved = 2,
                               k_counters = 3, k_pins = 10;
  static constexpr base::Counter k_counted[k_counters] = {
      base::Counter::hits_ram, base::Counter::bytes_served, base::Counter::calls_saved};
  std::atomic<std::uint64_t> counters[k_counters];
  // segment:18 | pins on it:14. If there are no pins, the word belongs to no segment.
  std::atomic<std::uint32_t> pins[k_pins];
};

// state:8 | owner slot:24 | generation:32, so that one compare-and-swap decides about a segment.
// chunks: the segment belongs to large files (chunks.h) and has no records.
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
  // Bytes given out.
  std::atomic<std::uint32_t> fill;
  // Segments of the run that begins here.
  std::atomic<std::uint32_t> run_length;
  // Published records, stale ones included.
  std::atomic<std::uint32_t> records;
  // Prefetched records that have not been opened yet.
  std::atomic<std::uint32_t> unread;
  // Bytes that records use.
  std::atomic<std::uint64_t> used_bytes;
  // The ring has leased the segment or the segment has joined it; it then stays the ring's.
  std::atomic<std::uint32_t> is_ring;
  // Set until the memory is given back to others (room_for_others.h).
  std::atomic<std::uint32_t> has_memory;
  // Confirmed records that are not from the disk.
  std::atomic<std::uint32_t> fresh;
  // How many of these are on the disk, or will never be.
  std::atomic<std::uint32_t> flushed;
  // A program has mapped pages of it, and a child may have inherited the mapping.
  std::atomic<std::uint32_t> is_mapped;
  // The segment holds metadata (metadata_room.h).
  std::atomic<std::uint32_t> holds_metadata;
};

// Files that are open for writing, by device and inode (writers.h).
struct alignas(64) WriterStripe {
  static constexpr std::uint32_t k_places = 7;
  // hash:48 | how often:16
  std::atomic<std::uint64_t> writers[k_places];
  // Writers for which there was no place.
  std::atomic<std::uint32_t> others;
  // Changes of files of this stripe so far.
  std::atomic<std::uint32_t> epoch;
};

// A file that a process had open for writing when it ended or became another program (writers.h).
// The process is written under the lifecycle lock, while the row is free.
struct LeftWriter {
  // hash:48 | mapped:1 | order:14, so that a row is not mistaken for its successor | shared:1; 0:
  // free
  std::atomic<std::uint64_t> word;
  // base::ProcessId of the process that had the file open.
  std::atomic<std::uint64_t> pid, start_time, pid_namespace;
};

// One fetch under way: path tag:38 | its bytes come as a program reads them:1 | prefetch:1 |
// generation of the owner's slot:12 | owner slot + 1:12; 0: free.
struct FlightSlot {
  std::atomic<std::uint64_t> word;
  // Futex.
  std::atomic<std::uint32_t> wakeups;
  // A process may be waiting.
  std::atomic<std::uint32_t> waiting;
};

// The path of a directory that a program reads file by file; the leader takes it from here. state:
// 0 is free, 1 is posted, n >= 2 means that the process of slot n - 2 is writing it; the slot is
// freed when that process ends.
struct ListingSlot {
  std::atomic<std::uint32_t> state;
  std::uint32_t length;
  // Hash of the path. It detects a path that two processes wrote at once, which can happen if a
  // process ends while it writes.
  std::uint64_t hash;
  char path[1008];
};

// A directory that a program has listed (listings.h). The row does not count the directory's files,
// so a large directory takes no more than a small one.
struct ListedRow {
  // Rows that a hash may take.
  static constexpr std::uint32_t k_ways = 8;
  // 0: the row is free.
  std::atomic<std::uint64_t> hash;
  // KiB of the directory's files: that programs have opened for the first time since; of these, in
  // files that had been fetched ahead; that were fetched because of the listing.
  std::atomic<std::uint32_t> read_kib, early_kib, fetched_kib;
  // How many files read_kib covers.
  std::atomic<std::uint32_t> files;
  // Monotonic clock, seconds: the last listing or read.
  std::atomic<std::uint32_t> used;
  // RegionHeader::leads + 1 at the time when it was posted; 0: it was not.
  std::atomic<std::uint32_t> lead;
};

// A request to the gateway (mailbox.h). state:4 | error:12 | generation of the owner's slot:12 |
// owner slot + 1:12 | number of the request:24, so that one compare-and-swap decides about it.
struct alignas(64) MailRow {
  static constexpr std::uint32_t k_part_words = 6, k_words = 222, k_why_words = 22;
  std::atomic<std::uint64_t> word;
  // Coarse monotonic clock: nobody waits for the answer after this time.
  std::atomic<std::uint64_t> overdue_ns;
  // kind:8 | prefetch:8 | length of the prefix:16, of the URL:16, of the path below them:16
  std::atomic<std::uint64_t> head;
  // Futex: counts answers and steps of progress.
  std::atomic<std::uint32_t> news;
  // base::boot_ns: a record that was verified since then is the answer.
  std::atomic<std::uint64_t> since_ns;
  // GatewayRow::store of the gateway that is asked.
  std::atomic<std::uint64_t> store;
  // MailQuery::part.
  std::atomic<std::uint64_t> part[k_part_words];
  // These three texts, one behind the other.
  std::atomic<std::uint64_t> text[k_words];
  // The gateway's words about an error, filled up with zeros.
  std::atomic<std::uint64_t> why[k_why_words];
};

// Each place where a record may begin has one bit: prefetched, and not opened yet. Records are
// larger than this grain, so no two begin in the same place.
inline constexpr std::uint64_t k_unread_grain = 256;

// A place for a chunk. `word` is like SegmentRow::word: free; sealed: the place holds a chunk;
// evicting: its owner checks whether another chunk may have it; open: its owner writes another
// chunk's identity here.
struct alignas(64) ChunkRow {
  static constexpr std::uint32_t k_pages = k_chunk_bytes / 4096;
  std::atomic<std::uint64_t> word;
  std::atomic<std::uint64_t> path, version[2];  // FileKey
  // The chunk's number in its file.
  std::atomic<std::uint32_t> number;
  // A program maps it, or did: no other file may have this place.
  std::atomic<std::uint32_t> is_mapped;
  // Bits in `ahead`; too high after a death.
  std::atomic<std::uint32_t> unread;
  // The job of `shown`, as the low bits of JobRow::last_used.
  std::atomic<std::uint32_t> shown_to;
  // A bit for each page of 4 KiB.
  std::atomic<std::uint64_t> present[k_pages / 64];
  // Like `present`: the page was fetched ahead, and nobody has read or mapped it yet.
  std::atomic<std::uint64_t> ahead[k_pages / 64];
  // 0: the chunk stays; otherwise its order among the chunks that pass.
  std::atomic<std::uint64_t> passed;
  // Like `present`: the page must not be offered to the tiers any more.
  std::atomic<std::uint64_t> offered[k_pages / 64];
  // Blocks that became whole since the chunk's pages were last offered to the tiers.
  std::atomic<std::uint32_t> to_offer;
  // Blocks that ever became whole at this place.
  std::atomic<std::uint32_t> wholes;
  // Like `present`: the page must not be sent to the cluster any more.
  std::atomic<std::uint64_t> shared[k_pages / 64];
  // Like `present`: a mapping of the job `shown_to` shows or showed the page.
  std::atomic<std::uint64_t> shown[k_pages / 64];
};

// The path and the stat of a large file, for a reader that has only its FileKey (large_paths.h).
// Rows are written without a lock: a reader verifies what it has read by the key.
struct alignas(64) LargePathRow {
  static constexpr std::uint32_t k_words = 127;
  // FileKey::version[0] of the file with bit 0 set; 0: the row is free.
  std::atomic<std::uint64_t> tag;
  std::atomic<std::uint64_t> words[k_words];
};

// The places of chunks, plus one, by the hash of file and chunk number.
struct ChunkBucket {
  static constexpr std::uint32_t k_slots = 8;
  std::atomic<std::uint32_t> slots[k_slots];
};

struct alignas(64) IndexBucket {
  static constexpr int k_slots = 8;
  std::atomic<std::uint64_t> slots[k_slots];
};

static_assert(std::is_standard_layout_v<RegionHeader> && sizeof(RegionHeader) <= 4096);
static_assert(sizeof(ChunkRow) == 384 && sizeof(ChunkBucket) == 32 && sizeof(LargePathRow) == 1024);
static_assert(sizeof(SegmentRow) == 56 && sizeof(IndexBucket) == 64 && sizeof(WriterStripe) == 64 &&
              sizeof(FlightSlot) == 16);
static_assert(sizeof(LeftWriter) == 32 && sizeof(LaneRow) == 64);
static_assert(sizeof(base::ServerRow) == 192);
static_assert(sizeof(MailRow) == 2048);
static_assert(sizeof(ListingSlot) == 1024 && sizeof(ListedRow) == 32);

}  // namespace cube::cache
