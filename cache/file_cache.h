// The one door of cache/: opens a covered file by asking the tiers in order and says what came of it.
// The way of an open: find in RAM -> (miss) one fetch for the node: from the disk, if the origin's stat is that of what it has,
// or from the origin -> publish -> Pin. A large file of the origin becomes a Fill, which the program's reads bring to that. Else
// a kernel fd, where the file cannot be cached, or the origin's error. Invariants: what a Pin shows is what the origin held at
// the recorded size and mtime, as far as CUBESHIM_CONSISTENCY asks for it; a file that is open for writing on this node is not
// cached. Thread safety: all of it. A hit allocates nothing, takes no lock and is async-signal-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cache/base/config.h"
#include "cache/disk_tier.h"
#include "cache/fetch.h"
#include "cache/origin/origins.h"
#include "cache/ram/listings.h"
#include "cache/ram/ram_tier.h"
#include "cache/ram/single_flight.h"

namespace cube::cache {

class Fill;

struct OpenRequest {
  std::string_view key;        // absolute, normalised path of the file
  const char* path = nullptr;  // the same with a terminating zero; the origin is asked by it
  int flags = O_RDONLY;        // the program's
  // Called before the origin is opened, for the program may get that very fd.
  void (*before_kernel_open)() = [] {};
  // Takes a file whose bytes come as they are read (fill.h), under the number that the program will know it by. False: it cannot.
  // Called with signals blocked. Null: a file is fetched as a whole.
  bool (*serve_fill)(void* who, Fill& fill, int fd) = nullptr;
  void* who = nullptr;
};

// Exactly one of pin, kernel_fd and error is set.
struct OpenOutcome {
  Pin pin;
  bool used_fd = false;      // of pin: one was open meanwhile, of the origin, the disk or the region, and is free again
  bool was_fetched = false;  // of pin: by this open, from the origin
  int kernel_fd = -1;
  bool is_directory = false;  // of kernel_fd
  bool is_filling = false;    // of kernel_fd: it was taken by serve_fill
  int error = 0;
};

class FileCache {
 public:
  static base::Result<FileCache*> attach(const base::Config& config, const base::ProcessId& job, bool create, std::string& why);

  // Before anybody opens anything. Until then, and with null, there are only mounts.
  void use_origins(const Origins* origins) { origins_ = origins != nullptr && !origins->has_only_mounts() ? origins : nullptr; }
  // Null: there are only mounts.
  const Origins* origins() const { return origins_; }
  const Origin& origin_of(std::string_view path) const { return origins_ != nullptr ? origins_->of(path) : mount_origin(); }
  std::uint64_t max_file() const { return rules_.max_file; }

  OpenOutcome open(const OpenRequest& request);
  // A record that is there and fresh, for stat and access. No fetch.
  Pin find(const OpenRequest& request);

  // The same content laid out for mapping, for a record that is not; the new record takes the old one's place.
  base::Result<Pin> make_mappable(const Record& record);

  // The file was changed, by this path (absolute) and of this identity (if known).
  void content_changed(std::string_view key, const FileStat* stat);
  // All below a directory that was renamed, or reached by a link that was.
  void tree_changed(std::string_view directory);
  // From the opening for writing to the last close: nobody on the node caches the file.
  void writing_begins(std::string_view key, const FileStat& stat);
  void writing_ends(const FileStat& stat);
  // Others have the open file too (a child), or need none to write (a mapping): no close of ours ends the writing.
  void writing_is_shared(const FileStat& stat, Sharing how);
  // A child of ours has opened it for writing.
  void child_writes(std::string_view key, const FileStat& stat);

  base::Stats& stats() { return region_->stats(); }
  Region& region() { return *region_; }
  bool knows_device(std::uint64_t device) const { return ram_.knows_device(device); }
  // Null: there is none.
  DiskTier* disk() const { return disk_; }
  const RamTier& ram() const { return ram_; }
  bool is_empty() const { return region_->header().records.load(std::memory_order_relaxed) == 0; }
  // At the end of the process.
  void detach();
  // In a forked child: takes the parent's mappings out of the way, by system calls alone. The object is then dead.
  void abandon();
  // In any forked child: another thread of the parent may have been attaching.
  static void forget_attaching() { close_life_lock_after_fork(); }
  // In any forked child, before anything of its open files is ended: what is being filled is the parent's.
  static void forget_fills();
  // Caches that are done with are never freed (a fork may have left the allocator locked). They are chained, for a leak
  // checker takes what nothing points at for the program's leak.
  FileCache* former = nullptr;

  // Does the record need no look at the origin before it is served?
  bool needs_no_look(const Record& record) const;
  // Listed directories and the reads from them. Used only while prefetching is on (CUBESHIM_PREFETCH).
  Listings listings() { return Listings(*region_); }
  // Is anything prefetched on this node?
  bool is_prefetching() const { return region_->header().prefetch_wanted.load(std::memory_order_relaxed) != 0; }
  Ring& ring() { return ram_.ring(); }
  // If there is none yet.
  void make_ring(const base::RamSize& size);
  // Leaves room in it for what programs fetch, before it is used for what is prefetched.
  void prepare_ring() {
    if (disk_ != nullptr) ram_.prepare_shared();
  }
  // Is there no room for what is to stay?
  bool is_full() const { return ram_.is_full(); }
  // Bytes that the ring has room for.
  std::uint64_t ring_room() { return ram_.ring_room(); }
  // Makes room that the next records find ready. False: there is enough, or none to be had.
  bool prepare_room();
  // When this process does not lead any more.
  void end_prefetching() { ram_.release_ring_lease(); }

 private:
  friend class BackgroundFetch;
  FileCache(Region& region, const base::Config& config);
  bool is_fresh(const Record& record, const char* path);
  OpenOutcome open_missing(const OpenRequest& request, std::uint64_t hash);
  void attach_disk(const base::Config& config, const base::ProcessId& job);
  // The whole file, if the disk has it and the origin's stat says that it may be served. True: the outcome is there.
  bool open_from_disk(const OpenRequest& request, Lane lane, OpenOutcome& outcome);
  // The bytes of the file with this stat, from the disk; their hash.
  std::optional<std::uint64_t> fill_from_disk(std::string_view key, const FileStat& stat, std::byte* room);
  void note_opened(const Record& record, bool waited_for_prefetch);
  OpenOutcome fetch(const OpenRequest& request, Lane lane, SingleFlight::Ticket& turn);
  OpenOutcome fetch_opened(const OpenRequest& request, const Origin& origin, Opened& opened, Fetch& fetch,
                           SingleFlight::Ticket& turn);
  // The file is opened and its room is there; the program reads it part by part. False: it is to be fetched as a whole.
  bool serve_in_parts(const OpenRequest& request, Fetch& fetch, Opened& opened, SingleFlight::Ticket& turn, OpenOutcome& outcome);
  // Is it from the origin that this process sees there?
  bool has_right_origin(const Record& record) const {
    return (origins_ == nullptr && record.origin == k_mounts) || origin_of(record.path()).id() == record.origin;
  }
  bool may_fetch_neighbours() const;
  void keep_neighbours(const Origin& origin, Opened& opened);
  void keep_neighbour(const Opened::Neighbour& neighbour);
  // The origin gave no file.
  OpenOutcome fail(const OpenRequest& request, const Origin& origin, int error);
  // Without the cache: by the kernel, or a copy of what has no fd.
  OpenOutcome open_uncached(const OpenRequest& request, base::Counter reason);
  OpenOutcome open_plain(const OpenRequest& request, base::Counter reason);
  OpenOutcome hand_over(const OpenRequest& request, Opened& opened, base::Counter reason);

  Region* region_;
  const Origins* origins_ = nullptr;
  RamTier ram_;
  SingleFlight flights_;
  DiskTier* disk_ = nullptr;  // never freed, as this
  FetchRules rules_;
  base::Consistency consistency_;
  bool fetches_ahead_;
  bool serves_in_parts_;            // in mode real the program gets a file with all its bytes
  std::uint64_t job_start_ns_ = 0;  // base::boot_ns
};

}  // namespace cube::cache
