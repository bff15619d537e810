// The shared-memory file that all processes of the node map: its name, its life and its tables.
//
// Life: the first process makes it without a name (O_TMPFILE), reserves the control part, fills it
// and links it to RAM_DIR/cubeshim-UID-NAME, so that nobody ever sees half a region. The last
// process takes the name away, unless the user wants to keep it or the first process of a job,
// which prints the report, has not looked at it yet. Invariants: owner and mode (0600) fit, or it
// is refused; the data part is mapped read-only, through an fd that was opened read-only, so that
// not even mprotect makes it writable; no fd stays open; nothing is stored into pages that
// posix_fallocate has not reserved.
// Thread safety: attach once; everything else from any thread.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>

#include "cache/base/memory/mapping.h"
#include "cache/base/process/view.h"
#include "cache/base/unique_fd.h"
#include "cache/region/layout.h"
#include "cache/region/life/life_lock.h"

namespace cube::cache {

struct RegionOptions {
  std::string directory = "/dev/shm";
  std::string name = "default";
  bool is_percent = true;  // of `size`
  std::uint64_t size = 25;
  bool keep = false;
  bool create = true;    // false: only one that is there
  base::ProcessId job;   // the first process of the job
  base::View view = {};  // View::k_free: base::current_view()
};

class Region {
 public:
  // Maps the region and claims a process slot. On failure, `why` is one line for the user (or
  // empty, where there is simply none and `create` is false).
  static base::Result<Region*> attach(const RegionOptions& options, std::string& why);
  // Maps one that is there, to look at it: without a slot, so no more than counters, rows and
  // retire() may be used. ENOENT, with no `why`: there is none. Belongs to the caller.
  static base::Result<Region*> look(const RegionOptions& options, std::string& why);
  static std::string path_of(const std::string& directory, const std::string& name);
  // Without attaching: is there one, and has a file of this device ever been cached in it? Says yes
  // rather too often.
  static bool may_hold(const std::string& directory, const std::string& name, std::uint64_t device);
  // Living processes that are attached.
  std::uint32_t count_processes() const;
  // Frees what the dead have left. Cheap enough for now and then.
  void reap();
  // Takes the name away, for good: those who are attached go on with what they have, the next makes
  // a new region.
  base::Result<void> retire();
  // The same if all processes that used it are gone, it is not to be kept, and no report is due.
  // Whether it was.
  bool retire_if_unused();
  // The same, but leaves a young region alone: its maker may be about to join it.
  bool retire_if_left();
  // The same for all regions of this user in a directory, whatever their names, and for sockets on
  // which nobody listens.
  static void sweep_regions(const std::string& directory);
  // The socket on which the leader of its prefetching listens.
  static std::string socket_path_of(const std::string& region_path) {
    return region_path + std::string(k_socket_suffix);
  }
  // Gives the slot back unless pins are held; takes the name away if nobody else is left.
  // The mappings stay: other threads may still be reading.
  void detach();
  // In a forked child, whose slot this is not.
  void unmap() {
    control_.reset();
    data_.reset();
    writable_.reset();
    drop_life_after_fork(life_);
  }

  RegionHeader& header() const { return *at<RegionHeader>(0); }
  JobRow& job_row(std::uint32_t i) const { return at<JobRow>(layout_.jobs)[i]; }
  // The sum over jobs whose rows others have taken.
  base::Stats& forgotten_jobs() const { return job_row(layout_.job_rows).finished; }
  ProcessSlot& own_process() const { return process_slot(own_slot_); }
  ProcessSlot& process_slot(std::uint32_t i) const { return at<ProcessSlot>(layout_.processes)[i]; }
  std::atomic<std::uint32_t>* pin_row(std::uint32_t process) const {
    return at<std::atomic<std::uint32_t>>(layout_.pins) +
           std::uint64_t{process} * layout_.segment_count;
  }
  LaneRow& lane_row(std::uint32_t process, std::uint32_t lane) const {
    return at<LaneRow>(layout_.lanes)[std::uint64_t{process} * layout_.process_lanes + lane];
  }
  // The same of this process.
  LaneRow* own_lanes() const { return own_lanes_; }
  std::atomic<std::uint32_t>& own_lanes_reached() const { return *own_lanes_reached_; }
  SegmentRow& segment_row(std::uint32_t i) const { return at<SegmentRow>(layout_.segments)[i]; }
  WriterStripe& writer_stripe(std::uint32_t i) const {
    return at<WriterStripe>(layout_.writers)[i];
  }
  std::atomic<std::uint64_t>* own_writers(std::uint32_t process) const {
    return at<std::atomic<std::uint64_t>>(layout_.own_writers) +
           std::uint64_t{process} * k_own_writers;
  }
  LeftWriter& left_writer(std::uint32_t i) const { return at<LeftWriter>(layout_.left_writers)[i]; }
  std::atomic<std::uint64_t>* unread_bits() const {
    return at<std::atomic<std::uint64_t>>(layout_.unread);
  }
  std::atomic<std::uint64_t>& recent_miss(std::uint64_t hash) const {
    return at<std::atomic<std::uint64_t>>(layout_.misses)[hash % k_recent_misses];
  }
  ListingSlot& listing_slot(std::uint32_t i) const { return at<ListingSlot>(layout_.listings)[i]; }
  ListedRow& listed_row(std::uint32_t i) const { return at<ListedRow>(layout_.listed)[i]; }
  ChunkRow& chunk_row(std::uint32_t i) const { return at<ChunkRow>(layout_.chunks)[i]; }
  ChunkBucket& chunk_bucket(std::uint32_t i) const {
    return at<ChunkBucket>(layout_.chunk_buckets)[i];
  }
  // By the place in CUBESHIM_CLUSTER.
  base::ServerRow& server_row(std::uint32_t i) const {
    return at<base::ServerRow>(layout_.servers)[i];
  }
  LargeNameRow& large_name_row(std::uint32_t i) const {
    return at<LargeNameRow>(layout_.large_names)[i];
  }
  FlightSlot& flight_slot(std::uint32_t i) const { return at<FlightSlot>(layout_.flights)[i]; }
  IndexBucket* index_table(std::uint32_t i) const { return at<IndexBucket>(layout_.index[i]); }
  const std::byte* segment(std::uint32_t i) const {
    return data_.data() + std::uint64_t{i} * layout_.segment_bytes;
  }

  const RegionLayout& layout() const { return layout_; }
  std::uint32_t own_slot() const { return own_slot_; }
  std::uint32_t own_job() const { return own_job_; }
  std::uint32_t own_view() const { return own_view_; }  // its bit in Record::views
  std::uint64_t own_rights() const {
    return own_rights_;
  }  // base::current_rights() when it attached
  // This process sees something else from now on, or may read something else.
  void leave_view() { own_process().has_left_view.store(1, std::memory_order_relaxed); }
  base::Stats& stats() const { return process_slot(own_slot_).stats; }
  const std::string& path() const { return path_; }
  // Is it still the file of that name?
  bool is_named() const;
  // A writable mapping of part of the data: `at` is a page, counted from the first segment.
  base::Result<base::Mapping> window(std::uint64_t at, std::size_t bytes) const;
  std::uint64_t offset_in_data(const void* at) const {
    return static_cast<std::uint64_t>(static_cast<const std::byte*>(at) - data_.data());
  }
  std::uint64_t offset_of(const std::byte* data) const {
    return layout_.data + static_cast<std::uint64_t>(data - data_.data());
  }

  // An fd of the very file that is mapped, for a window or for a program's own mapping; ESTALE
  // where the name is gone.
  base::Result<base::UniqueFd> reopen(int flags) const;
  // Is this fd one of the very file that is mapped?
  bool is_ours(int fd) const;
  // What this process has mapped for as long as it is attached.
  std::array<std::span<const std::byte>, 3> mapped() const {
    return {{{control_.data(), control_.size()},
             {data_.data(), data_.size()},
             {writable_.data(), writable_.size()}}};
  }
  // Memory for segments [first, first + count); ENOSPC or ENOMEM where there is none.
  base::Result<void> reserve_segments(std::uint32_t first, std::uint32_t count);
  // Would enough of the directory's file system stay free for its other users
  // (life/room_for_others.h) if the region took so many bytes more? It takes none for a while after
  // it gave some back.
  bool leaves_room_for_others(std::uint64_t bytes) const;
  // Have the machine, the control group and the directory so much left, and some for others?
  bool has_memory_for(std::uint64_t bytes) const;
  // Memory for part of the data, without a look at what the machine has: `at` is a page, counted
  // from the first segment.
  base::Result<void> reserve_data(std::uint64_t at, std::uint64_t bytes);
  // Memory for one more table of the index, unless somebody else has added one to the `known` ones
  // meanwhile. ENOSPC: it has all of them; ENOMEM: there is no memory now.
  base::Result<void> add_index_table(std::uint32_t known);

 private:
  enum class Joined { yes, no, gone };
  static constexpr std::string_view k_socket_suffix = ".sock";

  Region() = default;
  // Claims a slot, unless this region has ended or is to end now.
  Joined join(const RegionOptions& options, std::string& why);
  std::string why_not_claimed(int error) const;
  // The bit of this view; 0 where all are taken.
  std::uint32_t claim_view(const base::View& view);
  // The same, of a view that no process has any more.
  std::uint32_t take_ended_view(const base::View& view);
  void remove_name();
  static void sweep_name(RegionOptions& options, std::string_view name);
  template <typename T>
  T* at(std::uint64_t offset) const {
    return reinterpret_cast<T*>(control_.data() + offset);
  }
  base::Result<void> open_existing(std::string& why);
  base::Result<void> create(const RegionOptions& options, std::string& why);
  base::Result<void> map(int read_write_fd, int read_only_fd);

  base::Mapping control_, data_;
  base::Mapping writable_;  // the data part again, inaccessible: windows are duplicates of parts of
                            // it (no fd, no name needed)
  base::Mapping life_;      // keeps our life lock (life_lock.h)
  RegionLayout layout_;
  std::string path_;
  std::uint64_t device_ = 0, inode_ = 0;
  std::uint32_t own_slot_ = 0, own_job_ = 0, own_view_ = 0;
  LaneRow* own_lanes_ = nullptr;
  std::atomic<std::uint32_t>* own_lanes_reached_ = nullptr;
  std::uint64_t own_rights_ = 0;
  bool keep_ = false, began_job_ = false;
};

}  // namespace cube::cache
