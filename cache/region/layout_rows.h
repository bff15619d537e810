// The rows of the tables in the region's control part (layout.h). The rows are in this order: tiers
// and gateways, jobs and processes, segments, writers, flights, directories, requests to gateways,
// large files, the index. Each change needs a new k_layout_version. Thread safety: most fields are
// atomics. A plain field is written before other processes can find its row, unless the field's
// comment says otherwise.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "cache/base/lane.h"
#include "cache/base/process/process_id.h"
#include "cache/base/settings/server_row.h"
#include "cache/base/settings/stats.h"
#include "cache/region/noted_path.h"

namespace cube::cache {

// The status of a tier, as in base::TierStatus.
struct TierRow {
  std::atomic<std::uint64_t> capacity, used, entries, unwritten, is_there;
};

// A gateway (mailbox.h).
struct GatewayRow {
  // The hash of the store and of the credentials that the gateway uses (bucket_mount.h).
  std::atomic<std::uint64_t> store;
  // generation:32 | slot + 1:32 of the gateway's process; 0: the row is free.
  std::atomic<std::uint64_t> process;
  // Coarse monotonic clock: the time until which processes wait for a gateway that has been
  // started. This field does not belong to the gateway of this row, but to all stores whose mark
  // modulo k_gateways is the index of this row.
  std::atomic<std::uint64_t> due_ns;
  // A bit for each error (modulo 32) of this gateway that a process has reported to the user.
  std::atomic<std::uint32_t> told;
  // A random part of the name of the gateway's socket, so that no other user can create a file of
  // that name first.
  std::atomic<std::uint32_t> socket;
  // Totals since the start of the gateway: answered attempts, repeated attempts, bytes of bodies,
  // and time to the first byte.
  std::atomic<std::uint64_t> answers, retries, bytes, first_byte_ns;
  // The number of requests in flight, and how many the gateway currently allows.
  std::atomic<std::uint32_t> in_flight, most_in_flight;
};

// How often one call materialized served files. The call's name is cut to 16 bytes.
struct CallCount {
  std::atomic<std::uint64_t> name[2];
  std::atomic<std::uint64_t> count;
};
// How many different calls have their own count. All other calls are counted only in
// Counter::materialized.
inline constexpr std::uint32_t k_call_counts = 6;

// The number of reasons for which an open is not served. The counters of these reasons are adjacent
// in the enum.
inline constexpr std::size_t k_unserved_reasons =
    static_cast<std::size_t>(base::Counter::bypassed_error) -
    static_cast<std::size_t>(base::Counter::bypassed_size) + 1;

// For each reason, the first file that was not served (unserved_paths.h).
struct UnservedRow {
  // JobRow::last_used of the job; 0: the row is free.
  std::atomic<std::uint64_t> job;
  NotedPath<128> first[k_unserved_reasons];
};
inline constexpr std::uint32_t k_unserved_rows = 16;

// A job: the first process that loaded the shim, and its descendants. The table has one more row at
// its end, in which `finished` is the sum over all jobs whose rows were given to other jobs.
struct JobRow {
  // pid 0: the row is free.
  base::ProcessId leader;
  // The order in which rows were claimed: the newest row has the highest number.
  std::uint64_t last_used;
  // base::boot_ns at which the first process of the job attached.
  std::uint64_t started_ns;
  // Set when the job's first process has detached, so that no process will write the report.
  std::atomic<std::uint32_t> reported;
  // Set when the job's last report has been written.
  std::atomic<std::uint32_t> told;
  // The sum over the job's processes that have ended.
  base::Stats finished;
  // Monotonic clock: the time of the next report.
  std::atomic<std::uint64_t> next_report_ns;
  // The numbers of requests and of hits at the time of the last report.
  std::atomic<std::uint64_t> reported_requests, reported_hits;
  CallCount materialized_by[k_call_counts];
  // A file below a prefix that a program opened by a path outside all prefixes.
  NotedPath<256> misspelled;
  // How many entries of the job's list of paths have been handled.
  std::atomic<std::uint64_t> listed;
  // The time (base::boot_ns) at which a child process ended that may have changed paths unnoticed.
  // Listings that were verified before this time are revalidated.
  std::atomic<std::uint64_t> metadata_doubted_ns;
};

struct alignas(64) ProcessSlot {
  // Set while a process has the slot. The process may be dead (life_lock.h).
  std::atomic<std::uint32_t> used;
  // Counts the claims of this slot.
  std::atomic<std::uint32_t> generation;
  std::uint32_t job;
  // The bit in Record::views that belongs to the view of the slot's process.
  std::atomic<std::uint32_t> view;
  std::atomic<std::uint32_t> has_left_view;
  // All lanes that threads of the slot's process have used (lanes.h) are below this number. The
  // number can be too high, because an earlier process of the slot may have set it.
  std::atomic<std::uint32_t> lanes_reached;
  base::ProcessId process;
  // Waits of programs for the origin while files are prefetched: the waits in progress, the
  // finished waits, and the total time of the finished waits.
  std::atomic<std::uint32_t> demand_waits;
  std::atomic<std::uint32_t> demand_fetches;
  std::atomic<std::uint64_t> demand_ns;
  // `flights`: how often the process has begun or ended a flight (single_flight.h). `stuck_at`: the
  // value of `flights`, plus one, at which another process waited for a flight in vain.
  std::atomic<std::uint64_t> flights, stuck_at;
  // base::hash_of_own_command() of the slot's process. 0: not known.
  std::atomic<std::uint64_t> command;
  base::Stats stats;
};

// The words that a hit writes (lanes.h). Each lane of a process's threads has a row of its own.
struct alignas(base::k_cache_line) LaneRow {
  static constexpr std::size_t k_hits_ram = 0, k_bytes_served = 1, k_calls_saved = 2,
                               k_counters = 3, k_pins = 10;
  static constexpr base::Counter k_counted[k_counters] = {
      base::Counter::hits_ram, base::Counter::bytes_served, base::Counter::calls_saved};
  std::atomic<std::uint64_t> counters[k_counters];
  // segment:18 | pins on it:14. If there are no pins, the word belongs to no segment.
  std::atomic<std::uint32_t> pins[k_pins];
};

// The state of a segment. SegmentRow::word consists of the fields state:8 | owner slot:24 |
// generation:32, so that one compare-and-swap can change all three. chunks: the segment belongs to
// large files (chunks.h) and has no records.
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
  // Bytes that have been reserved for records.
  std::atomic<std::uint32_t> fill;
  // The number of segments in the run that begins here.
  std::atomic<std::uint32_t> run_length;
  // Published records, stale ones included.
  std::atomic<std::uint32_t> records;
  // Prefetched records that have not been opened yet.
  std::atomic<std::uint32_t> unread;
  // Bytes that records use.
  std::atomic<std::uint64_t> used_bytes;
  // Set if the segment belongs to the ring, because the ring has leased the segment or the segment
  // has joined the ring.
  std::atomic<std::uint32_t> is_ring;
  // Set while the segment has memory. Cleared when the memory is given back to the machine
  // (room_for_others.h).
  std::atomic<std::uint32_t> has_memory;
  // The number of confirmed records that did not come from the disk.
  std::atomic<std::uint32_t> fresh;
  // How many of the `fresh` records are on the disk by now, or will never be written to the disk.
  std::atomic<std::uint32_t> flushed;
  // Set if a program has mapped pages of this segment. The mark stays set when the program unmaps
  // the pages, because a forked child may still have the mapping.
  std::atomic<std::uint32_t> is_mapped;
  // Set if the segment holds metadata (metadata_room.h).
  std::atomic<std::uint32_t> holds_metadata;
};

// Files that are open for writing, by device and inode (writers.h).
struct alignas(64) WriterStripe {
  static constexpr std::uint32_t k_places = 7;
  // hash of the file:48 | how often the file is open for writing:16
  std::atomic<std::uint64_t> writers[k_places];
  // The number of writers for which there was no place.
  std::atomic<std::uint32_t> others;
  // The number of changes of files of this stripe.
  std::atomic<std::uint32_t> epoch;
};

// A file that a process had open for writing when the process ended or executed another program
// (writers.h). The fields about the process are written under the lifecycle lock while the row is
// free.
struct LeftWriter {
  // hash of the file:48 | mapped:1 | order:14 | shared:1; 0: the row is free. The order
  // distinguishes successive uses of a row.
  std::atomic<std::uint64_t> word;
  // base::ProcessId of the process that had the file open.
  std::atomic<std::uint64_t> pid, start_time, pid_namespace;
};

// The times of the last changes of an inode (last_changes.h).
struct LastChange {
  // hash:17 | base::boot_ns in units of 2^13 ns:47; 0: none.
  std::atomic<std::uint64_t> in_place, gone;
};

// A fetch in progress. `word` consists of these fields: tag of the path:38 | fetched in parts:1 |
// prefetch:1 | generation of the owner's slot:12 | owner slot + 1:12. 0: the row is free.
struct FlightSlot {
  std::atomic<std::uint64_t> word;
  // Futex.
  std::atomic<std::uint32_t> wakeups;
  // Whether a process may be waiting (see single_flight.cc).
  std::atomic<std::uint32_t> waiting;
};

// A message to the leader: the path of a directory that a program reads file by file. `state`: 0 is
// free, 1 is posted, and n >= 2 means that the process of slot n - 2 is writing the path. If this
// process ends, the ListingSlot is freed.
struct ListingSlot {
  std::atomic<std::uint32_t> state;
  std::uint32_t length;
  // The hash of the path. If the hash does not match, two processes have written the path at the
  // same time, because one of them ended while it was writing.
  std::uint64_t hash;
  char path[1008];
};

// A directory that a program has listed (listings.h). The row does not list the directory's files,
// so large and small directories take the same room.
struct ListedRow {
  // The number of candidate rows of a hash.
  static constexpr std::uint32_t k_ways = 8;
  // 0: the row is free.
  std::atomic<std::uint64_t> hash;
  // Total sizes of files of the directory, in KiB. read_kib: files that programs have opened for
  // the first time since the listing. early_kib: the part of these files that had been fetched
  // ahead. fetched_kib: files that were fetched because of the listing.
  std::atomic<std::uint32_t> read_kib, early_kib, fetched_kib;
  // The number of files that read_kib covers.
  std::atomic<std::uint32_t> files;
  // Monotonic clock, seconds: the time of the last listing or read.
  std::atomic<std::uint32_t> used;
  // RegionHeader::leads + 1 at the time when the directory was posted; 0: it was not posted.
  std::atomic<std::uint32_t> lead;
};

// A request to the gateway (mailbox.h). `word` consists of these fields: state:4 | error:12 |
// generation of the owner's slot:12 | owner slot + 1:12 | number of the request:24, so that one
// compare-and-swap can change all fields.
struct alignas(64) MailRow {
  static constexpr std::uint32_t k_part_words = 6, k_words = 222, k_why_words = 22;
  std::atomic<std::uint64_t> word;
  // Coarse monotonic clock: after this time no process waits for the answer.
  std::atomic<std::uint64_t> overdue_ns;
  // kind:8 | prefetch:8 | length of the prefix:16, of the URL:16, of the path below them:16
  std::atomic<std::uint64_t> head;
  // Futex: counts answers and steps of progress.
  std::atomic<std::uint32_t> news;
  // base::boot_ns: a record that was verified at or after this time is a valid answer.
  std::atomic<std::uint64_t> since_ns;
  // GatewayRow::store of the gateway that is asked.
  std::atomic<std::uint64_t> store;
  // MailQuery::part.
  std::atomic<std::uint64_t> part[k_part_words];
  // The prefix, the URL and the path, one after another.
  std::atomic<std::uint64_t> text[k_words];
  // The gateway's message about an error, padded with zeros.
  std::atomic<std::uint64_t> why[k_why_words];
};

// The region has a bit for each grain of each segment. The bit is set if the record that begins in
// the grain was prefetched and has not been opened yet. Records are larger than a grain, so at most
// one record begins in a grain.
inline constexpr std::uint64_t k_unread_grain = 256;

// A chunk is a piece of a large file (chunks.h): k_chunk_bytes bytes that begin at a multiple of
// k_chunk_bytes. Every segment size is a multiple of k_chunk_bytes.
inline constexpr std::uint32_t k_chunk_bytes = 2 << 20;

// A place for a chunk. `word` is like SegmentRow::word, with these states. free: the place has no
// chunk. sealed: the place has a chunk. evicting: the owner checks whether another chunk may have
// the place. open: the owner writes another chunk's identity into this row.
struct alignas(64) ChunkRow {
  static constexpr std::uint32_t k_pages = k_chunk_bytes / 4096;
  std::atomic<std::uint64_t> word;
  std::atomic<std::uint64_t> path, version[2];  // FileKey
  // The chunk's number in its file.
  std::atomic<std::uint32_t> number;
  // k_is_mapped is set if a program maps or has mapped the chunk. No other file may then get this
  // place. The other bits belong to Chunks::Claim::note_mapper.
  static constexpr std::uint32_t k_is_mapped = 1U << 31;
  std::atomic<std::uint32_t> mapped;
  bool is_mapped() const { return (mapped.load(std::memory_order_seq_cst) & k_is_mapped) != 0; }
  // How many bits are set in `ahead`. This number is too high if a process died while it changed
  // the bits.
  std::atomic<std::uint32_t> unread;
  // The job to which `shown` applies, as the low bits of JobRow::last_used.
  std::atomic<std::uint32_t> shown_to;
  // A bit for each page of 4 KiB, set if the page is present.
  std::atomic<std::uint64_t> present[k_pages / 64];
  // A bit for each page, set if the page was fetched ahead and has not been read or mapped yet.
  std::atomic<std::uint64_t> ahead[k_pages / 64];
  // The chunk's order number among the chunks that pass. 0: the chunk does not pass.
  std::atomic<std::uint64_t> passed;
  // A bit for each page, set if the page must no longer be offered to the tiers.
  std::atomic<std::uint64_t> offered[k_pages / 64];
  // How many blocks have become whole since the chunk's pages were last offered to the tiers.
  std::atomic<std::uint32_t> to_offer;
  // How many blocks have ever become whole at this place.
  std::atomic<std::uint32_t> wholes;
  // A bit for each page, set if the page must no longer be sent to the cluster.
  std::atomic<std::uint64_t> shared[k_pages / 64];
  // A bit for each page, set if a mapping of the job `shown_to` shows the page or has shown it.
  std::atomic<std::uint64_t> shown[k_pages / 64];
};

// The path and the stat of a large file, for a reader that has only its FileKey (large_paths.h).
// Rows are written without a lock, so a reader verifies the content of a row by the key.
struct alignas(64) LargePathRow {
  static constexpr std::uint32_t k_words = 127;
  // FileKey::version[0] of the file, with bit 0 set. 0: the row is free.
  std::atomic<std::uint64_t> tag;
  std::atomic<std::uint64_t> words[k_words];
};

// A bucket of the table that finds chunks. A slot contains the place of a chunk, plus one. A hash
// of the file and of the chunk's number selects the buckets.
struct ChunkBucket {
  static constexpr std::uint32_t k_slots = 8;
  std::atomic<std::uint32_t> slots[k_slots];
};

struct alignas(64) IndexBucket {
  static constexpr int k_slots = 8;
  std::atomic<std::uint64_t> slots[k_slots];
};

static_assert(sizeof(ChunkRow) == 384 && sizeof(ChunkBucket) == 32 && sizeof(LargePathRow) == 1024);
static_assert(sizeof(SegmentRow) == 56 && sizeof(IndexBucket) == 64 && sizeof(WriterStripe) == 64 &&
              sizeof(FlightSlot) == 16);
static_assert(sizeof(LeftWriter) == 32 && sizeof(LastChange) == 16 && sizeof(LaneRow) == 64);
static_assert(sizeof(base::ServerRow) == 192);
static_assert(sizeof(MailRow) == 2048);
static_assert(sizeof(ListingSlot) == 1024 && sizeof(ListedRow) == 32);

}  // namespace cube::cache
