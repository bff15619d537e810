// The store of the disk tier. Records of RAM segments are written back to back into segment files,
// where all processes of the node, and later jobs, find them.
//
// Life of a record: append() writes the record, adds a tentative entry to the index, checks again
// that the record in RAM is not marked, and only then confirms the entry. A thread that changes a
// file first marks the record in RAM, and then calls forget(). So either append() sees the mark, or
// forget() finds the entry. forget() removes the record from the index, and marks it on the disk,
// so that a restart does not find it. When room is needed, whole segment files are removed.
//
// Invariants: read() returns a record only if it is not marked as dropped, and if its path and the
// hashes of its header and data match. Segment files that the running job has written or read are
// not removed, because otherwise data larger than the bound would evict itself. The store uses at
// most the bound, and leaves a share of the file system free. A record that is not of this run
// (DiskPlace) may be outdated, so the caller must ask the origin for the file's stat. Readers check
// only the mark `stale` of a record on the disk. A power cut may undo forget() and drop(), but
// after it no record is of this run. Thread-safe, also across processes. find() and read() are
// async-signal-safe, and allocate nothing. No fd stays open. A forked child must call
// forget_writer(). No exception leaves a function.
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
  std::uint64_t size_bound = 0;          // bytes; 0: size_percent determines the bound
  std::uint32_t size_percent = 100;      // percent of the free space, less keep_free_percent
  std::uint64_t segment_bytes = 0;       // 0: derived from the bound, 1 to 256 MiB
  std::uint64_t expected_files = 0;      // sizes the index; 0: derived from the bound
  std::uint32_t keep_free_percent = 10;  // percent of the file system
  bool is_read_only = false;
  bool is_direct = true;   // O_DIRECT if the file system has it
  bool is_durable = true;  // flushes a sealed file to the disk
  std::uint64_t job = 0;   // the id of the job; 0: this process is a job of its own
};

// The places of records, newest first. There may be several, because tags can collide, and because
// older records of a file may not have been dropped.
struct DiskPlaces {
  std::array<DiskPlace, 4> places;
  std::uint32_t count = 0;
  const DiskPlace* begin() const { return places.data(); }
  const DiskPlace* end() const { return places.data() + count; }
};

struct DiskAppended {
  std::uint32_t written = 0, there_already = 0, stale = 0,
                refused = 0;  // too large, damaged, or without room in the index
};

struct DiskStatus {
  std::uint64_t capacity = 0, used = 0, entries = 0, segments = 0;
  std::uint64_t bad_records = 0, io_errors = 0, evicted = 0;
  bool is_read_only = false;
};

class DiskStore {
 public:
  // On failure, `why` explains the failure to the user in one line.
  static base::Result<std::unique_ptr<DiskStore>> open(const DiskOptions& options,
                                                       std::string& why);
  ~DiskStore();
  DiskStore(const DiskStore&) = delete;
  DiskStore& operator=(const DiskStore&) = delete;

  // Returns the places where a record of this path may be. Reads only the index.
  DiskPlaces find(std::uint64_t path_hash) const;
  // Reads a record into `buffer` with one read. The buffer must begin at a page boundary and have
  // at least place.buffer_bytes(). ENOENT: the record has another path, was dropped, or its segment
  // file was evicted. EBADMSG: the record was damaged, and is now dropped. Any other errno is an
  // error of the disk.
  base::Result<const Record*> read(const DiskPlace& place, std::string_view path,
                                   std::span<std::byte> buffer);

  // Writes the records at these offsets of a RAM segment, except those that are damaged or already
  // in the store. The records must stay in RAM until append() returns. ENOSPC: the data of this job
  // fills the bound, or the disk is full; for some seconds, append() does not try again. EROFS: the
  // store is read-only.
  base::Result<DiskAppended> append(std::span<const std::byte> segment,
                                    std::span<const std::uint64_t> offsets);
  // Ends the segment file that is being written. If `durable` is false, does not wait for the disk,
  // so a power cut may lose a part of the file. An exiting process must not wait.
  base::Result<void> seal(bool durable = true);

  // These two functions remove all records of a changed file, and return the number of removed
  // records. forget finds the records by their path, forget_inode by device and inode under any
  // path.
  std::size_t forget(std::string_view path);
  std::size_t forget_inode(std::uint64_t device, std::uint64_t inode);
  // Removes only this record, because the origin has shown that it is outdated.
  bool drop(const DiskPlace& place, std::string_view path);
  // From now on, no existing record is of this run, so the origin is asked about each of them. Call
  // it if many paths now name other files, for example after a directory was renamed.
  void distrust_all();

  DiskStatus status() const;
  // Returns 0 if a record with this many bytes of data fits into a segment file, and otherwise the
  // smallest bound with which it would fit.
  std::uint64_t least_bound_for(std::uint64_t data_bytes) const;
  // The size in bytes, with header and path, of the largest record that fits into a segment file.
  std::uint64_t largest_record() const {
    return segment_bytes_ - k_disk_header_bytes - most_footer_bytes(1);
  }
  // Call it in a forked child. Forgets the open segment file, which belongs to the parent.
  void forget_writer();
  // Like forget_writer, but also unmaps everything. The object must not be used afterwards.
  void abandon();

 private:
  struct Head;
  class MappedHead;
  struct Candidate {
    const Record* record;
    bool replaces;  // the record replaces an older record of its path
  };

  DiskStore(const DiskOptions& options, DiskDirectory directory);
  base::Result<void> attach(std::string& why);
  base::Result<void> attach_shared(std::string& why);
  base::Result<void> attach_private(std::string& why);
  base::Result<void> choose_sizes(std::string& why);
  base::Result<void> rebuild(const DiskGeometry& geometry, std::uint64_t boot);
  DiskGeometry wanted_geometry() const;

  // Adds the records of all files in the directory to the index. If `builder` is not null, the
  // index must be empty, and no other process may have opened it.
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
  bool is_private_ = false;  // only this process uses the index, and nothing is written to the disk
  mutable std::atomic<bool> no_direct_{false};
  std::atomic<std::uint64_t> bad_records_{0}, io_errors_{0}, evicted_{0};
  std::atomic<bool> reported_bad_{false}, reported_error_{false}, reported_full_{false};

  // Guards the following members.
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
  std::unique_ptr<SegmentWriter> writer_;  // null: no segment file is being written
  std::vector<Candidate> batch_;
  std::uint64_t batch_bytes_ = 0;
  std::uint64_t full_until_ns_ = 0;
};

}  // namespace cube::cache
