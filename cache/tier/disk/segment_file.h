// One segment file. One process writes and seals the file; after a restart, its records are entered
// in the index again. Life: the file is created with reserved room, and records are appended. Then
// the file is sealed: the footer is written after the records, and the rest of the room is freed.
// If a file has no footer and its writer is dead, another process reads its records, up to the
// first damaged record. Invariants: the writer holds an exclusive flock through a mapping of the
// header page. So no fd stays open, and the kernel releases the lock when the writer dies. The
// writer opens the file by its path for each write, and checks that it is the same file. Thread
// safety: a SegmentWriter belongs to one thread at a time. The functions change only the file.
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
  std::uint32_t changed_s = 0;  // the file's mtime: when a job last used it
  std::vector<DiskFooterRow> rows;
  bool has_footer = false;
};

// Reads the footer. EBADMSG: the header or the footer is not sound.
base::Result<SegmentContents> read_footer(int fd, std::uint32_t number);
// Makes the kernel read ahead the bytes that read_footer needs. Does not wait for them.
void will_need_footer(const DiskDirectory& directory, std::uint32_t number);
// Reads the records of a file without a footer. EBADMSG: the header is not sound.
base::Result<SegmentContents> walk_records(int fd, std::uint32_t number);
// Writes the footer, truncates the file after it, and returns the new size of the file. If
// `durable` is true, returns only when the whole file is on the disk.
base::Result<std::uint64_t> write_footer(int fd, std::uint32_t number, std::uint64_t data_end,
                                         std::span<const DiskFooterRow> rows, bool durable);
// Reads exactly this many bytes. EIO: the file ends too early.
base::Result<void> read_fully(int fd, void* to, std::uint64_t bytes, std::uint64_t at);

class SegmentWriter {
 public:
  // Creates the file. ENOSPC: there is no room. EEXIST: there is already a file with this number.
  static base::Result<SegmentWriter> create(const DiskDirectory& directory, std::uint32_t number,
                                            std::uint64_t file_bytes, std::uint64_t job);
  // Whether the file has room for `records` more records with `bytes` bytes in total, and for the
  // footer.
  bool fits(std::uint64_t bytes, std::uint64_t records) const {
    return data_end_ + bytes + most_footer_bytes(rows_.size() + records) <= file_bytes_;
  }
  // Appends the parts, whose total size must be a multiple of 64 bytes. Modifies `parts`.
  base::Result<void> append(const DiskDirectory& directory, std::span<iovec> parts);
  void add_row(const DiskFooterRow& row) { rows_.push_back(row); }
  base::Result<std::uint64_t> seal(const DiskDirectory& directory, bool durable);

  // Call it in a forked child. Forgets the file, which belongs to the parent.
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
