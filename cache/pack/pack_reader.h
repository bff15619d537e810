// Reads a packed data set. The index is mapped and never loaded: a look-up touches a page of its
// table, which is soon in memory, and one or two of its slots. open() believes nothing that it has
// not checked; what it cannot check without reading it all (slots, records, data) is checked when
// it is used. A damaged pack gives errors, never other bytes. A pack that somebody cuts short while
// it is mapped is damaged, too: the kernel is asked whether a page of the index can be read before
// it is read. Known limit: the microsecond between the two. Its fd is not needed for what it reads
// to be right: where a read does not give what it should, and the number leads to another file (a
// program may close what it does not know), the pack is opened again. Thread safety: all const
// functions, by any number of threads. find, locate, read_record, read_span, read and read_part
// allocate nothing and are async-signal-safe.
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

  // ENOENT: the pack has none. EBADMSG: it is damaged there; else the error of the read.
  base::Result<PackEntry> find(std::string_view path) const;

  // For one read instead of two, where it is known how much room there is: the place of the n-th
  // record with this hash of its path (there is hardly ever a second), by the index alone. ENOENT:
  // there are fewer.
  base::Result<PackSlot> locate(std::uint64_t path_hash, std::uint64_t n = 0) const;
  // The whole record with one read, header and data checked. ENOENT: it is another path's. `to`:
  // slot.bytes, aligned to 8.
  base::Result<PackEntry> read_record(const PackSlot& slot, std::string_view path,
                                      std::byte* to) const;

  // The same for several at once. So many bytes of the records as they lie there, unchecked, or
  // less at the end of the last; then one record among them, `got` bytes from its begin on (aligned
  // to 8), checked as read_record does. If that gives EBADMSG, the fd may have led to another file:
  // read_record finds out.
  base::Result<std::size_t> read_span(std::uint64_t at, std::size_t n, std::byte* to) const;
  static base::Result<PackEntry> check_record(const PackSlot& slot, std::string_view path,
                                              const std::byte* bytes, std::size_t got);

  // All data of an entry with one read; EBADMSG where it is not what was packed.
  base::Result<void> read(const PackEntry& entry, std::byte* to) const;
  // Some of it, unchecked; all that is asked for, or less at its end.
  base::Result<std::size_t> read_part(const PackEntry& entry, std::uint64_t from, std::byte* to,
                                      std::size_t n) const;

  // Asks the kernel to fetch it without waiting, where the mount keeps pages: part of the file, or
  // the index, once.
  void will_need(std::uint64_t at, std::uint64_t n) const;
  void will_need_index() const;
  // Is the index small enough to be in memory as a whole?
  bool can_keep_index() const { return header_.index_bytes <= k_most_kept_index; }
  // Does it? On a FUSE mount with direct I/O it does not, and everything would be read twice.
  bool keeps_pages() const { return keeps_pages_; }

  // All records in the order of the file.
  PackScan scan() const {
    return {fd_.load(std::memory_order_relaxed), header_.records_begin, header_.records_end};
  }
  // Reads the whole index: is it the one that was written?
  bool index_is_sound() const;

  const PackHeader& header() const { return header_; }
  const std::string& file() const { return name_; }
  // The identity of this very file: the header alone does not tell it from a pack of other bytes
  // with the same sizes.
  std::uint64_t identity() const;

  // Is the file still as it was when it was opened? To be asked after what was read or looked up,
  // for the index is mapped: a pack that is rewritten in place gives what is sound, and of another
  // pack. By its times and its size, without waiting for a server; once a second the server is
  // asked. False is for good.
  bool is_untouched() const;

  // In a program that is not ours: the fd gets a high number. Before others use the reader.
  void keep_out_of_the_way();

  PackReader(const PackReader&) = delete;
  PackReader& operator=(const PackReader&) = delete;
  ~PackReader();

 private:
  static constexpr std::uint64_t k_most_kept_index = 64 << 20;  // more is not fetched for a guess

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
  FileStat stat_{};  // of the file that was opened
  mutable std::atomic<int> fd_{-1};
  mutable std::atomic<bool> index_is_asked_for_{false};
  mutable std::atomic<bool> is_touched_{false};
  mutable std::atomic<std::uint64_t> looked_ns_{0};  // base::boot_ns, when the server was asked
  mutable std::atomic<std::int64_t> changed_s_{0},
      changed_ns_{0};  // its ctime, which renaming it moves too
  bool keeps_pages_ = false;
  PackHeader header_{};
  base::Mapping index_;
  const std::uint64_t* table_ = nullptr;
  const PackSlot* slots_ = nullptr;
};

}  // namespace cube::cache
