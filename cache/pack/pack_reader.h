// Reads a packed data set. The index is mapped, not loaded. A lookup touches one page of the table,
// which is soon in memory, and one or two pages of slots. open() checks everything that it can
// check without reading the whole pack; slots, records and data are checked when they are used. A
// damaged pack causes errors, never wrong bytes. The host may close the pack's fd: if a read fails
// its check and the fd refers to another file, the pack is opened again. Thread safety: any number
// of threads may call const functions. find, locate, read_record, read_span, read and read_part
// allocate nothing and are async-signal-safe. Truncation: a pack may be truncated while it is
// mapped. So before a page of the index is read, the kernel is asked whether the page can be read.
// Known limit: a truncation between this question and the read ends the program.
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

  // ENOENT: the pack lacks the path. EBADMSG: the pack is damaged at that entry. Other errors are
  // those of the read.
  base::Result<PackEntry> find(std::string_view path) const;

  // The place of the n-th record whose path has this hash, from the index alone. (A second such
  // record is very rare.) Saves a read if the caller has room for the whole record. ENOENT: there
  // are at most n such records.
  base::Result<PackSlot> locate(std::uint64_t path_hash, std::uint64_t n = 0) const;
  // Reads the whole record with one read, and checks header and data. `to`: room for slot.bytes,
  // aligned to 8. ENOENT: the record belongs to another path.
  base::Result<PackEntry> read_record(const PackSlot& slot, std::string_view path,
                                      std::byte* to) const;

  // read_span and check_record together read several records with one request. read_span reads n
  // bytes of the records without checking them, or fewer at the end of the last record. After that,
  // check_record checks one of the records as read_record does. `bytes` is the start of the record,
  // aligned to 8; `got` bytes were read from there on. EBADMSG: the fd may refer to another file;
  // read_record finds out whether it does.
  base::Result<std::size_t> read_span(std::uint64_t at, std::size_t n, std::byte* to) const;
  static base::Result<PackEntry> check_record(const PackSlot& slot, std::string_view path,
                                              const std::byte* bytes, std::size_t got);

  // Reads all data of an entry with one read. EBADMSG: the data differs from what was packed.
  base::Result<void> read(const PackEntry& entry, std::byte* to) const;
  // Reads a part of the data without checking it: n bytes, or fewer at the end of the data.
  base::Result<std::size_t> read_part(const PackEntry& entry, std::uint64_t from, std::byte* to,
                                      std::size_t n) const;

  // If the mount keeps pages, these functions ask the kernel to fetch a part of the file or, only
  // once, the whole index. The functions do not wait for the pages.
  void will_need(std::uint64_t at, std::uint64_t n) const;
  void will_need_index() const;
  // Whether the index is small enough to be kept in memory as a whole.
  bool can_keep_index() const { return header_.index_bytes <= k_most_kept_index; }
  // Whether the mount keeps pages. A FUSE mount with direct I/O keeps no pages, so a prefetch would
  // read everything twice.
  bool keeps_pages() const { return keeps_pages_; }

  // All records in the order of the file.
  PackScan scan() const {
    return {fd_.load(std::memory_order_relaxed), header_.records_begin, header_.records_end};
  }
  // Reads the whole index and checks its hash.
  bool index_is_sound() const;

  const PackHeader& header() const { return header_; }
  const std::string& file() const { return name_; }
  // Identifies this particular file. The header alone does not suffice, because two packs that
  // differ only in bytes, not in sizes, have the same header.
  std::uint64_t identity() const;

  // Whether the file is unchanged since it was opened. The caller checks this after each read or
  // lookup, because a pack that was rewritten in place contains sound records of another pack. The
  // check compares the times and the size that the kernel has cached. Once a second, the check asks
  // the server. After the first false, the result stays false.
  bool is_untouched() const;

  // For use in a host program: moves the fd to a high number. Called before other threads use the
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
  mutable std::atomic<std::uint64_t> looked_ns_{0};  // base::boot_ns, when the server was asked
  mutable std::atomic<std::int64_t> changed_s_{0},
      changed_ns_{0};  // the pack's ctime, which a rename also changes
  bool keeps_pages_ = false;
  PackHeader header_{};
  base::Mapping index_;
  const std::uint64_t* table_ = nullptr;
  const PackSlot* slots_ = nullptr;
};

}  // namespace cube::cache
