// The shared-memory file that all processes of the node map.
//
// Lifetime: the first process creates the file without a name (O_TMPFILE), and reserves and fills
// the control part. Only then does the process link the file to RAM_DIR/cubeshim-UID-NAME, so that
// no process ever sees an incomplete region. The last process removes the name. It keeps the name
// if the user wants to keep the region, or if the first process of a job has yet to read its report
// from the region. Invariants: a region with the wrong owner or with a mode other than 0600 is
// refused. The data part is mapped read-only, through an fd that was opened read-only, so even
// mprotect cannot make it writable. No fd stays open. Processes write only to pages that were
// reserved before (fallocate). Thread safety: attach is called once. Any thread may call all other
// functions.
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
#include "cache/region/resident_pages.h"

namespace cube::cache {

struct RegionOptions {
  std::string directory = "/dev/shm";
  std::string name = "default";
  // Whether `size` is in percent.
  bool is_percent = true;
  std::uint64_t size = 25;
  bool keep = false;
  // False: attach only to a region that exists.
  bool create = true;
  // The first process of the job.
  base::ProcessId job;
  // If View::number is k_free, base::current_view() is used.
  base::View view = {};
};

class Region {
 public:
  // Maps the region and claims a process slot. On failure, `why` is one line for the user, or empty
  // if there is no region and `create` is false.
  static base::Result<Region*> attach(const RegionOptions& options, std::string& why);
  // Maps an existing region to inspect it. The result has no process slot, so only counters, rows
  // and retire() may be used. ENOENT with an empty `why`: there is no region. The caller owns the
  // result.
  static base::Result<Region*> look(const RegionOptions& options, std::string& why);
  static std::string path_of(const std::string& directory, const std::string& name);
  // Whether a region exists in which a file of this device has ever been cached. Does not attach.
  // May wrongly return true.
  static bool may_hold(const std::string& directory, const std::string& name, std::uint64_t device);
  // Counts the living processes that are attached.
  std::uint32_t count_processes() const;
  // Like count_processes(), but uses an fd of the region's file, which may have lost its name.
  // Without an fd, every process counts as living.
  std::uint32_t count_processes(base::Result<base::UniqueFd> fd) const;
  // Frees everything that dead processes have left. Cheap enough to be called from time to time.
  void reap();
  // Removes the name permanently. Attached processes continue to use the region, but the next
  // process makes a new region.
  base::Result<void> retire();
  // Like retire(), but does nothing if a process still uses the region, a setting keeps the region,
  // or a report is due. Returns whether it retired the region.
  bool retire_if_unused();
  // Like retire_if_unused(), but spares a young region unless all jobs that have used it are known
  // to be over. The creator of a young region may be about to join it, or a job may be running in
  // another pid namespace.
  bool retire_if_left();
  // Calls retire_if_left() for all regions of this user in a directory, and removes sockets on
  // which no process listens.
  static void sweep_regions(const std::string& directory);
  // Returns the path of the socket on which the leader of the region's prefetching listens.
  static std::string socket_path_of(const std::string& region_path) {
    return region_path + std::string(k_socket_suffix);
  }
  // Gives the slot back if this process has no pins, and removes the name if no other process is
  // left. The mappings stay, because other threads may still be reading.
  void detach();
  // For a forked child, which does not own the slot: unmaps the region.
  void unmap() {
    control_.reset();
    data_.reset();
    writable_.reset();
    drop_life_after_fork(life_);
  }

  // Limits how much of the region the kernel counts as memory of this process (see ResidentPages).
  void bound_resident(std::uint64_t bytes) { resident_.set_bound(bytes); }
  void note_read(std::uint64_t bytes) { resident_.note_read(bytes, data_, writable_); }

  RegionHeader& header() const { return *at<RegionHeader>(0); }
  // Makes all processes revalidate everything that has been verified so far. Used for a change that
  // cannot be marked because no memory or no fd is left. Needs no memory and no fd.
  // Async-signal-safe.
  void doubt_all() const;
  JobRow& job_row(std::uint32_t i) const { return at<JobRow>(layout_.jobs)[i]; }
  // The sum over all jobs whose rows other jobs have taken.
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
  // The lanes of this process.
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
  LastChange& last_change(std::uint64_t hash) const {
    return at<LastChange>(layout_.last_changes)[hash % layout_.last_change_rows()];
  }
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
  // Indexed by the server's position in CUBESHIM_CLUSTER.
  base::ServerRow& server_row(std::uint32_t i) const {
    return at<base::ServerRow>(layout_.servers)[i];
  }
  LargePathRow& large_path_row(std::uint32_t i) const {
    return at<LargePathRow>(layout_.large_paths)[i];
  }
  FlightSlot& flight_slot(std::uint32_t i) const { return at<FlightSlot>(layout_.flights)[i]; }
  MailRow& mail_row(std::uint32_t i) const { return at<MailRow>(layout_.mail)[i]; }
  UnservedRow& unserved_row(std::uint32_t i) const { return at<UnservedRow>(layout_.unserved)[i]; }
  IndexBucket* index_table(std::uint32_t i) const { return at<IndexBucket>(layout_.index[i]); }
  const std::byte* segment(std::uint32_t i) const {
    return data_.data() + std::uint64_t{i} * layout_.segment_bytes;
  }

  const RegionLayout& layout() const { return layout_; }
  std::uint32_t own_slot() const { return own_slot_; }
  std::uint32_t own_job() const { return own_job_; }
  // The bit of this process's view in Record::views.
  std::uint32_t own_view() const { return own_view_; }
  // The bit to add to a record that this process has found by its path. 0 if the process is leaving
  // its view: what it finds from then on is shown to nobody.
  std::uint32_t view_to_show() const { return is_leaving_view() ? 0 : own_view_; }
  // base::current_rights() at the time when this process attached.
  std::uint64_t own_rights() const { return own_rights_; }
  // Call it before this process changes its root or its rights, because another thread may be in
  // the middle of a fetch. Call stay_in_view() if the change fails.
  static void begin_leaving_view() { g_leaving.fetch_add(1, std::memory_order_seq_cst); }
  static void stay_in_view() { g_leaving.fetch_sub(1, std::memory_order_seq_cst); }
  static bool is_leaving_view() { return g_leaving.load(std::memory_order_seq_cst) != 0; }
  // A forked child lacks the threads that were about to leave the view.
  static void forget_leaving() { g_leaving.store(0, std::memory_order_relaxed); }
  // Called when this process has changed its root or its rights. The process then leaves its view.
  void leave_view() { own_process().has_left_view.store(1, std::memory_order_relaxed); }
  base::Stats& stats() const { return process_slot(own_slot_).stats; }
  const std::string& path() const { return path_; }
  // Whether the region's name still belongs to this region.
  bool is_named() const;
  // Maps a part of the data writable. `at` is an offset from the start of the first segment, and a
  // multiple of the page size.
  base::Result<base::Mapping> window(std::uint64_t at, std::size_t bytes) const;
  // Returns a writable address of the byte at this offset. Makes no new mapping, for a process that
  // can have no more mappings. Instead, it makes the whole mapping `writable_` accessible, so from
  // then on a stray store of this process can damage the data. Null: the kernel refuses.
  std::byte* writable_at(std::uint64_t at) const;
  std::uint64_t offset_in_data(const void* at) const {
    return static_cast<std::uint64_t>(static_cast<const std::byte*>(at) - data_.data());
  }
  // Whether the address lies in this process's mapping of the segments.
  bool holds(const void* at) const { return offset_in_data(at) < data_.size(); }
  std::uint64_t offset_of(const std::byte* data) const {
    return layout_.data + static_cast<std::uint64_t>(data - data_.data());
  }

  // Opens an fd of the mapped file, for a window or for a program's own mapping. ESTALE: the name
  // was removed.
  base::Result<base::UniqueFd> reopen(int flags) const;
  // Whether the fd refers to the mapped file.
  bool is_ours(int fd) const;
  // The ranges that this process maps as long as it is attached.
  std::array<std::span<const std::byte>, 3> mapped() const {
    return {{{control_.data(), control_.size()},
             {data_.data(), data_.size()},
             {writable_.data(), writable_.size()}}};
  }
  // Reserves memory for the segments [first, first + count). ENOSPC or ENOMEM: there is no memory.
  base::Result<void> reserve_segments(std::uint32_t first, std::uint32_t count);
  // Whether the directory's file system would still have enough room for its other users
  // (life/room_for_others.h) if the region took this many more bytes. Also false for a while after
  // the region has given memory back.
  bool leaves_room_for_others(std::uint64_t bytes) const;
  // Whether the machine, the control group and the directory have this many bytes left in addition
  // to a reserve for others.
  bool has_memory_for(std::uint64_t bytes) const;
  // Reserves memory for a part of the data, without checking how much memory the machine has. `at`
  // is an offset from the start of the first segment, and a multiple of the page size.
  base::Result<void> reserve_data(std::uint64_t at, std::uint64_t bytes);
  // Reserves memory for one more table of the index, unless another process has already added a
  // table to the `known` tables. ENOSPC: the index already has all tables. ENOMEM: there is
  // currently no memory.
  base::Result<void> add_index_table(std::uint32_t known);

 private:
  enum class Joined { yes, no, gone };
  static constexpr std::string_view k_socket_suffix = ".sock";

  Region() = default;
  // Claims a slot. `gone`: this region has ended, or must end now.
  Joined join(const RegionOptions& options, std::string& why);
  std::string why_not_claimed(int error) const;
  // Returns the bit of this view; 0 if all bits are taken.
  std::uint32_t claim_view(const base::View& view);
  // Like claim_view, but takes the bit of a view that no process has any longer.
  std::uint32_t take_ended_view(const base::View& view);
  void remove_name();
  static void sweep_name(RegionOptions& options, std::string_view name);
  template <typename T>
  T* at(std::uint64_t offset) const {
    return reinterpret_cast<T*>(control_.data() + offset);
  }
  base::Result<void> open_existing(std::string& why);
  // Warns if another job has created the region with a size that differs from this job's setting.
  void warn_of_other_size(const RegionOptions& options) const;
  base::Result<void> create(const RegionOptions& options, std::string& why);
  base::Result<void> map(int read_write_fd, int read_only_fd);

  base::Mapping control_, data_;
  // A second, inaccessible mapping of the data part. Windows are duplicates of parts of this
  // mapping, so they need neither an fd nor a name.
  base::Mapping writable_;
  ResidentPages resident_;
  // Keeps this process's life lock (life_lock.h).
  base::Mapping life_;
  RegionLayout layout_;
  std::string path_;
  std::uint64_t device_ = 0, inode_ = 0;
  std::uint32_t own_slot_ = 0, own_job_ = 0, own_view_ = 0;
  static constinit inline std::atomic<std::uint32_t> g_leaving{0};
  LaneRow* own_lanes_ = nullptr;
  std::atomic<std::uint32_t>* own_lanes_reached_ = nullptr;
  std::uint64_t own_rights_ = 0;
  bool keep_ = false, began_job_ = false;
};

}  // namespace cube::cache
