// Reads a packed data set. The index is mapped and never loaded: a look-up touches a page of its table, which is soon in
// memory, and one or two of its slots. open() believes nothing that it has not checked; what it cannot check without reading
// it all (slots, records, data) is checked when it is used. A damaged pack gives errors, never other bytes.
// Known limit: a pack that somebody cuts short while it is mapped raises SIGBUS, as any mapped file does; packs are replaced by
// rename.
// Thread safety: all const functions, by any number of threads. find, locate, read_record, read and read_part allocate
// nothing and are async-signal-safe.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "cache/base/unique_fd.h"
#include "cache/pack/file_view.h"
#include "cache/pack/pack_scan.h"

namespace cube::cache {

class PackReader {
 public:
  // Null: `why` is a sentence that names the file.
  static std::unique_ptr<PackReader> open(const std::string& file, std::string& why);

  // ENOENT: the pack has none. EBADMSG: it is damaged there; else the error of the read.
  base::Result<PackEntry> find(std::string_view path) const;

  // For one read instead of two, where it is known how much room there is: the place of the n-th record with this hash of its
  // path (there is hardly ever a second), by the index alone. ENOENT: there are fewer.
  base::Result<PackSlot> locate(std::uint64_t path_hash, std::uint64_t n = 0) const;
  // The whole record with one read, header and data checked. ENOENT: it is another path's. `to`: slot.bytes, aligned to 8.
  base::Result<PackEntry> read_record(const PackSlot& slot, std::string_view path, std::byte* to) const;

  // All data of an entry with one read; EBADMSG where it is not what was packed.
  base::Result<void> read(const PackEntry& entry, std::byte* to) const;
  // Some of it, unchecked; all that is asked for, or less at its end.
  base::Result<std::size_t> read_part(const PackEntry& entry, std::uint64_t from, std::byte* to, std::size_t n) const;

  // All records in the order of the file.
  PackScan scan() const { return {file_.get(), header_.records_begin, header_.records_end}; }
  // Reads the whole index: is it the one that was written?
  bool index_is_sound() const;

  const PackHeader& header() const { return header_; }

 private:
  PackReader() = default;
  bool read_frame(std::string& why);

  base::UniqueFd file_;
  PackHeader header_{};
  FileView index_;
  const std::uint64_t* table_ = nullptr;
  const PackSlot* slots_ = nullptr;
};

}  // namespace cube::cache
