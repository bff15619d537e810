// The disk tier's store. It writes the records of sealed RAM segments back to back into segment
// files, where all processes of the node and later jobs find them again.
//
// Life of a record: append() writes it, enters it in the index tentatively, checks its mark in RAM
// once more, and only then confirms the entry. A thread that changes a file marks the record in RAM
// first and then calls forget(), so one of the two sees the other. forget() takes the record out of
// the index and marks it on the disk; the mark survives a restart. Whole segment files are removed
// when room is needed.
//
// Invariants: read() returns a record only if the hash of its header, the hash of its data and its
// path match, and no mark says that it was dropped. Records that the running job has written or
// read stay: data larger than the bound must not evict itself. The store uses no more than the
// bound, and a share of the file system stays free. A record that is not of this run (DiskPlace)
// may be out of date: the caller asks the origin for the file's size and mtime. Readers evaluate
// only the first mark of a record on the disk. A power cut may lose forget() and drop(); after it,
// nothing is of this run. Thread-safe, across processes too. find and read are async-signal-safe
// and allocate nothing. No fd stays open. After a fork the child calls forget_writer(). No
// exception escapes.
#pragma once

#include <pthread.h>

#include <array>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "cache/record/record.h"
#include "cache/tier/disk/disk_directory.h"
#include "cache/tier/disk/disk_index.h"
#include "cache/tier/disk/index_builder.h"
#include "cache/tier/disk/segment_file.h"

namespace cube::cache {

struct DiskOptions {
  std::string directory;
  std::string name = "default";
  std::uint64_t size_bound = 0;          // bytes; 0: size_percent decides
  std::uint32_t size_percent = 100;      // percent of the free space, less keep_free_percent
  std::uint64_t segment_bytes = 0;       // 0: derived from the bound, 1 to 256 MiB
  std::uint64_t expected_files = 0;      // sizes the index; 0: derived from the bound
  std::uint32_t keep_free_percent = 10;  // percent of the file system
  bool is_read_only = false;
  bool is_direct = true;   // O_DIRECT if the file system has it
  bool is_durable = true;  // flushes a sealed file to the disk
  std::uint64_t job = 0;   // the id of the whole job; 0: this process is its own job
};

// Newest first. There are several if tags collide, or if an older record of the same file was not
// dropped.
struct DiskPlaces {
  std::array<DiskPlace, 4> places;
  std::uint32_t count = 0;
  const DiskPlace* begin() const { return places.data(); }
  const DiskPlace* end() const { return places.data() + count; }
};

struct DiskAppended {
  std::uint32_t written = 0, there_already = 0, stale = 0,
                refused = 0;  // too large, not sound, or no room in the index
};

struct DiskStatus {
  std::uint64_t capacity = 0, used = 0, entries = 0, segments = 0;
  std::uint64_t bad_records = 0, io_errors = 0, evicted = 0;
  bool is_read_only = false;
};

class DiskStore {
 public:
  // On failure, `why` is one line for the user.
  static base::Result<std::unique_ptr<DiskStore>> open(const DiskOptions& options,
                                                       std::string& why);
  ~DiskStore();
  DiskStore(const DiskStore&) = delete;
  DiskStore& operator=(const DiskStore&) = delete;

  // Returns the places at which records of this path may lie. Reads nothing but the index.
  DiskPlaces find(std::uint64_t path_hash) const;
  // Reads into `buffer`, which begins at a page boundary and has at least place.buffer_bytes(),
  // with one read. ENOENT: the record is of another path, was dropped, or its file was evicted.
  // EBADMSG: it was damaged, and is now dropped. Any other error comes from the disk.
  base::Result<const Record*> read(const DiskPlace& place, std::string_view path,
                                   std::span<std::byte> buffer);

  // Writes the records of one RAM segment that lie at these offsets, are sound, and are not in the
  // store yet. They stay in RAM until append() returns. ENOSPC: this job's data fill the bound, or
  // the disk is full; tried again after some seconds. EROFS: read-only.
  base::Result<DiskAppended> append(std::span<const std::byte> segment,
                                    std::span<const std::uint64_t> offsets);
  // Ends the segment file that is being written. Unless `durable`, does not wait for the disk,
  // because an exiting process must not; a power cut may then lose part of the file.
  base::Result<void> seal(bool durable = true);

  // Forgets all records of a changed file: those of this path, and those of this device and inode
  // under any path. Returns how many there were.
  std::size_t forget(std::string_view path);
  std::size_t forget_inode(std::uint64_t device, std::uint64_t inode);
  // Drops this record alone, which the origin has shown to be out of date.
  bool drop(const DiskPlace& place, std::string_view path);
  // Makes no record count as of this run from now on, because too many paths now name other files,
  // for example after the rename of a directory.
  void distrust_all();

  DiskStatus status() const;
  // Returns 0 if a record with this many bytes of data has room in a segment file; otherwise the
  // smallest bound that would give it room.
  std::uint64_t least_bound_for(std::uint64_t data_bytes) const;
  // Bytes of the largest record that has room in a segment file, including its header and path.
  std::uint64_t largest_record() const {
    return segment_bytes_ - k_disk_header_bytes - most_footer_bytes(1);
  }
  // For a forked child, which does not own the segment file.
  void forget_writer();
  // Like forget_writer, but also unmaps everything: the object is dead.
  void abandon();

 private:
  struct Head;
  class MappedHead;
  struct Candidate {
    const Record* record;
    bool replaces;  // the record replaces an older one of its path
  };

  DiskStore(const DiskOptions& options, DiskDirectory directory);
  base::Result<void> attach(std::string& why);
  base::Result<void> attach_shared(std::string& why);
  base::Result<void> attach_private(std::string& why);
  base::Result<void> choose_sizes(std::string& why);
  base::Result<void> rebuild(const DiskGeometry& geometry, std::uint64_t boot);
  DiskGeometry wanted_geometry() const;

  // Enters all files of the directory into the index. With a builder, the index is empty, and no
  // other process has opened it.
  base::Result<void> reconcile(DiskIndexBuilder* builder);
  base::Result<void> build(const char* path);
  void load(std::uint32_t number, DiskIndexBuilder* builder);
  base::Result<SegmentContents> recover(int fd, std::uint32_t number);
  bool is_entered(std::uint64_t hash, std::uint32_t number, std::uint64_t offset) const;
  void enter(std::uint32_t number, const SegmentContents& contents, DiskIndexBuilder* builder);
  static void add_rows(std::uint32_t number, const SegmentContents& contents,
                       DiskIndexBuilder& builder);
  bool insert(std::uint64_t hash, std::uint64_t word);

  base::Result<void> read_head(const DiskPlace& place, Head& head) const;
  base::Result<std::size_t> read_bytes(const DiskPlace& place, std::span<std::byte> buffer) const;
  base::Result<const Record*> check_record(const DiskPlace& place, std::string_view path,
                                           std::span<const std::byte> bytes);
  int note_failed_read(const DiskPlace& place, std::string_view path, int error);
  bool remove(const DiskPlace& place, std::string_view path);
  void mark_dropped(const DiskPlace& place) const;
  void touch(const DiskPlace& place) const;

  bool has_it(const Record& record, bool& replaces) const;
  base::Result<void> write(DiskAppended& appended);
  bool publish(const Candidate& candidate, std::uint64_t offset);
  base::Result<void> next_segment();
  base::Result<void> end_segment(bool durable = true);
  base::Result<void> make_room(std::uint64_t bytes);
  base::Result<SegmentWriter> create_segment();
  void note_full(int error);
  bool evict_one();
  void evict(std::uint32_t number);
  std::uint64_t used_bytes() const;

  DiskOptions options_;
  DiskDirectory directory_;
  std::unique_ptr<DiskIndex> index_;
  std::uint64_t bound_ = 0, segment_bytes_ = 0;
  const char* index_name_ = "index";
  bool is_private_ = false;  // the index belongs to this process alone: nothing is written
  mutable std::atomic<bool> no_direct_{false};
  std::atomic<std::uint64_t> bad_records_{0}, io_errors_{0}, evicted_{0};
  std::atomic<bool> reported_bad_{false}, reported_error_{false}, reported_full_{false};

  // For the writer.
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
  std::unique_ptr<SegmentWriter> writer_;  // guarded by mutex_, like the rest
  std::vector<Candidate> batch_;
  std::uint64_t batch_bytes_ = 0;
  std::uint64_t full_until_ns_ = 0;
};

}  // namespace cube::cache
