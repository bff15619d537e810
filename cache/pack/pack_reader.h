// Reads a packed data set. The index is mapped. A lookup touches one page of the index's table,
// which is soon in memory, and one or two pages of slots. open() checks all that can be checked
// without reading the whole pack; slots, records and data are checked when they are used. A damaged
// pack causes errors, never wrong bytes. The host program may close the pack's fd. So if a read
// fails its check and the fd refers to another file, the pack is opened again. Thread safety: any
// number of threads may call const functions. find, locate, read_record, read_span, read and
// read_part allocate nothing and are async-signal-safe. Before a page of the index is read, the
// kernel is asked whether the page can be read, because the pack may have been truncated. Known
// limit: a truncation between this question and the read ends the program.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>

#include "cache/base/memory/mapping.h"
#include "cache/base/unique_fd.h"
#include "cache/pack/pack_scan.h"

namespace cube::cache {

class PackReader {
 public:
  // Null: `why` is a sentence that names the file.
  static std::unique_ptr<PackReader> open(const std::string& file, std::string& why);

  // ENOENT: the pack lacks the path. EBADMSG: the entry is damaged. Other errors are those of the
  // read.
  base::Result<PackEntry> find(std::string_view path) const;

  // The place of the n-th record whose path has this hash, from the index alone. (More than one
  // such record is very rare.) If the caller has room for the whole record, locate() and
  // read_record() need one read fewer than find() and read(). ENOENT: there are at most `n` such
  // records.
  base::Result<PackSlot> locate(std::uint64_t path_hash, std::uint64_t n = 0) const;
  // Reads the whole record with one read, and checks its header and data. `to` must have room for
  // slot.bytes bytes, and be aligned to 8 bytes. ENOENT: the record belongs to another path.
  base::Result<PackEntry> read_record(const PackSlot& slot, std::string_view path,
                                      std::byte* to) const;

  // Two functions to read several records with one request. read_span reads `n` bytes of records
  // without checking them, or fewer at the end of the last record. After that, check_record checks
  // one of the records as read_record does. `bytes` is the start of the record, aligned to 8 bytes;
  // `got` bytes were read from there on. EBADMSG: the record is damaged, or the fd refers to
  // another file; read_record would find out.
  base::Result<std::size_t> read_span(std::uint64_t at, std::size_t n, std::byte* to) const;
  static base::Result<PackEntry> check_record(const PackSlot& slot, std::string_view path,
                                              const std::byte* bytes, std::size_t got);

  // Reads all data of an entry with one read. EBADMSG: the data differs from what was packed.
  base::Result<void> read(const PackEntry& entry, std::byte* to) const;
  // Reads a part of the data without checking it: `n` bytes, or fewer at the end of the data.
  base::Result<std::size_t> read_part(const PackEntry& entry, std::uint64_t from, std::byte* to,
                                      std::size_t n) const;

  // If the mount keeps pages, these functions make the kernel fetch a part of the file, or the
  // whole index (only at the first call). Neither function waits for the pages.
  void will_need(std::uint64_t at, std::uint64_t n) const;
  void will_need_index() const;
  // Whether the index is small enough to be kept in memory as a whole.
  bool can_keep_index() const { return header_.index_bytes <= k_most_kept_index; }
  // Whether the kernel keeps pages of the pack. On a FUSE mount with direct I/O it does not, and a
  // prefetch would read everything twice.
  bool keeps_pages() const { return keeps_pages_; }

  // All records in the order of the file.
  PackScan scan() const {
    return {fd_.load(std::memory_order_relaxed), header_.records_begin, header_.records_end};
  }
  // Reads the whole index and checks its hash.
  bool index_is_sound() const;

  const PackHeader& header() const { return header_; }
  const std::string& file() const { return name_; }
  // Identifies the file of the pack. The header alone does not, because two packs with the same
  // paths and sizes have the same header even if the bytes of their files differ.
  std::uint64_t identity() const;

  // Whether the file is unchanged since it was opened. Call it after each read or lookup, because a
  // pack that was rewritten in place contains sound records of another pack. Compares the cached
  // times and size of the file; once a second, asks the server for them. After it has returned
  // false, it always returns false.
  bool is_untouched() const;

  // Moves the fd to a high number, for use in a host program. Call it before other threads use the
  // reader.
  void keep_out_of_the_way();

  PackReader(const PackReader&) = delete;
  PackReader& operator=(const PackReader&) = delete;
  ~PackReader();

 private:
  static constexpr std::uint64_t k_most_kept_index = 64 << 20;  // a larger index is not prefetched

  PackReader() = default;
  bool read_frame(std::string& why);
  base::Result<std::size_t> read_bytes(void* to, std::size_t n, std::uint64_t at) const;
  base::Result<PackEntry> find_once(std::string_view path) const;
  base::Result<PackEntry> read_record_once(const PackSlot& slot, std::string_view path,
                                           std::byte* to) const;
  base::Result<void> read_once(const PackEntry& entry, std::byte* to) const;
  bool revive() const;
  class IndexLook;
  template <typename Read>
  auto read_and_revive(Read&& read) const;

  std::string name_;
  FileStat stat_{};  // the stat of the file that was opened
  mutable std::atomic<int> fd_{-1};
  mutable std::atomic<bool> index_is_asked_for_{false};
  mutable std::atomic<bool> is_touched_{false};
  mutable std::atomic<std::uint64_t> looked_ns_{0};  // base::boot_ns of the last question to the
                                                     // server
  mutable std::atomic<std::int64_t> changed_s_{0},
      changed_ns_{0};  // the pack's ctime; a rename changes it, too
  bool keeps_pages_ = false;
  PackHeader header_{};
  base::Mapping index_;
  const std::uint64_t* table_ = nullptr;
  const PackSlot* slots_ = nullptr;
};

}  // namespace cube::cache
