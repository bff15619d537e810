// One segment file: one process writes it and seals it, and it is read again after a restart. Life:
// it is created with its room reserved, records are appended, and then it is sealed: the footer
// follows the records, and the rest of the room is freed. If a file has no footer and its writer is
// dead, another process walks its records as far as headers and data are sound. Invariants: the
// writer holds an exclusive flock by a mapping of the header page, so no fd stays open and the
// kernel releases the lock when the writer dies; before a file is written to by path, its identity
// is checked. Thread safety: a SegmentWriter belongs to one thread at a time; the functions are
// pure except for the file.
#pragma once

#include <span>
#include <vector>

#include "cache/base/memory/mapping.h"
#include "cache/tier/disk/disk_directory.h"
#include "cache/tier/disk/segment_format.h"

struct iovec;

namespace cube::cache {

struct SegmentContents {
  DiskHeader header{};
  std::uint64_t data_end = k_disk_header_bytes;
  std::uint64_t file_bytes = 0;
  std::uint32_t changed_s = 0;  // the file's mtime, which is the time of the last use by a job
  std::vector<DiskFooterRow> rows;
  bool has_footer = false;
};

// Reads the footer. EBADMSG: no sound header, or no sound footer.
base::Result<SegmentContents> read_footer(int fd, std::uint32_t number);
// Starts readahead of the bytes that read_footer reads, without waiting for them.
void will_need_footer(const DiskDirectory& directory, std::uint32_t number);
// For a file without a footer. EBADMSG: no sound header.
base::Result<SegmentContents> walk_records(int fd, std::uint32_t number);
// Writes the footer and truncates the file after it. If `durable`, returns when all of the file is
// on the disk.
base::Result<std::uint64_t> write_footer(int fd, std::uint32_t number, std::uint64_t data_end,
                                         std::span<const DiskFooterRow> rows, bool durable);
// Reads all bytes, or returns the errno; EIO if the file ends too early.
base::Result<void> read_fully(int fd, void* to, std::uint64_t bytes, std::uint64_t at);

class SegmentWriter {
 public:
  // ENOSPC: no room. EEXIST: there is a file of this number.
  static base::Result<SegmentWriter> create(const DiskDirectory& directory, std::uint32_t number,
                                            std::uint64_t file_bytes, std::uint64_t job);
  // True if there is room for `bytes` more in `records` more records, and for the footer.
  bool fits(std::uint64_t bytes, std::uint64_t records) const {
    return data_end_ + bytes + most_footer_bytes(rows_.size() + records) <= file_bytes_;
  }
  // Appends the parts, which are a multiple of 64 bytes in all. Modifies `parts`.
  base::Result<void> append(const DiskDirectory& directory, std::span<iovec> parts);
  void add_row(const DiskFooterRow& row) { rows_.push_back(row); }
  base::Result<std::uint64_t> seal(const DiskDirectory& directory, bool durable);

  // For a forked child, which does not own the file.
  void forget() { lock_.forget(); }

  std::uint32_t number() const { return number_; }
  std::uint64_t data_end() const { return data_end_; }

 private:
  base::Result<base::UniqueFd> reopen(const DiskDirectory& directory) const;

  base::Mapping lock_;
  std::uint32_t number_ = 0;
  std::uint64_t file_bytes_ = 0, data_end_ = k_disk_header_bytes;
  std::uint64_t device_ = 0, inode_ = 0;
  std::vector<DiskFooterRow> rows_;
};

}  // namespace cube::cache
