// Writes a pack. First the records are written to FILE.partial, one after another; then the index,
// the footer and the header follow. At the end, FILE.partial is renamed to FILE.
//
// A run can continue the work of an earlier run that did not finish. old() returns the records of
// the earlier run, in order. The caller passes its entries in the order of a pack. For each entry,
// the caller either keeps the old record (adopt) or adds a new record (add). If the new record has
// the same place and length as the old record, the later old records stay; otherwise all of them
// are dropped. The bytes before the journal's safe_end were on the disk when the journal was
// written. After a crash, bytes past safe_end may be lost, so the data of old records there is
// checked.
//
// Thread safety: one thread. Invariants: after the written records, the file contains zeros, or old
// records at their places. FILE appears only when the whole pack is on the disk.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "cache/base/unique_fd.h"
#include "cache/pack/pack_scan.h"
#include "cache/pack/pack_slots.h"

namespace cube::cache {

struct PackWriterOptions {
  std::string file;
  std::uint64_t arguments_hash = 0;  // an earlier run is continued only if its hash is the same
  std::string scratch = "/var/tmp";  // the directory for the temporary file of slots
};

struct OldRecord {
  PackEntry entry;
  std::string path;
};

class PackWriter {
 public:
  // EWOULDBLOCK: another writer has the file open.
  static base::Result<std::unique_ptr<PackWriter>> open(const PackWriterOptions& options);

  struct PackContent {
    std::string_view path;
    RecordKind kind = RecordKind::file;
    FileStat stat{};
  };
  base::Result<void> add(const PackContent& content, std::span<const std::byte> data);
  // Reads the next bytes of the data to `to`, and returns their number. A number below `n` means
  // the end. If the sum of all numbers is not the expected size, add_streamed fails with ESTALE.
  using Source = std::function<base::Result<std::size_t>(std::byte* to, std::size_t n)>;
  // Like add, but reads the data from `source` in parts. If the source fails, nothing is added, and
  // the writer remains usable.
  base::Result<void> add_streamed(const PackContent& content, std::uint64_t size,
                                  const Source& source);

  // The n-th of the remaining old records. Null: there is no such record.
  const OldRecord* old(std::size_t n = 0);
  // Keeps the first of the remaining old records. False: the record is damaged, and the caller must
  // add the entry.
  base::Result<bool> adopt();

  // Completes the pack, and renames it to FILE.
  base::Result<void> finish();
  // Stores the added entries on the disk, so that a later run can continue.
  base::Result<void> pause();

  const std::string& partial() const { return partial_; }
  const PackHeader& header() const { return header_; }
  bool has_failed_in_source() const { return has_failed_in_source_; }

 private:
  static constexpr std::uint64_t k_between_syncs = 256 << 20;

  explicit PackWriter(const PackWriterOptions& options)
      : name_(options.file),
        partial_(options.file + ".partial"),
        arguments_hash_(options.arguments_hash),
        slots_(options.scratch) {}
  base::Result<void> lock_and_look();
  base::Result<RecordPlan> place(const PackContent& content, std::uint64_t size);
  base::Result<void> flush();
  base::Result<void> note_added(const PackContent& content, const PackSlot& slot,
                                std::uint64_t size);
  base::Result<void> write_journal(std::uint64_t safe_end);
  // Must be called before bytes after `end` are overwritten. If the journal on the disk says that
  // bytes after `end` are safe, writes a new journal first.
  base::Result<void> end_safety_at(std::uint64_t end);
  base::Result<void> cut(std::uint64_t end);
  base::Result<void> write_index(std::span<const PackSlot> slots);
  base::Result<bool> data_is_as_written(const PackEntry& entry);

  std::string name_, partial_;
  std::uint64_t arguments_hash_;
  base::UniqueFd fd_;
  PackHeader header_{};
  PackSlots slots_;
  std::uint64_t fill_ = k_pack_records_begin;
  std::uint64_t file_end_ = 0, safe_end_ = k_pack_records_begin;
  std::unique_ptr<std::byte[]> buffer_;
  std::uint64_t buffer_at_ =
      k_pack_records_begin;  // the buffer contains the file's bytes from here to fill_
  std::unique_ptr<PackScan> old_scan_;
  std::deque<OldRecord> old_;
  bool has_failed_in_source_ = false;
};

}  // namespace cube::cache
