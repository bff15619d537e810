// Writes a pack. It writes the records one after another into FILE.partial, and then the index, the
// footer and the header. At the end it renames the file.
//
// A run continues the work of an earlier run, whose records old() returns in order. The caller
// passes entries in the order of a pack. For each entry it keeps the old record of the path (adopt)
// or writes a new record (add). If the new record has the place and length of the old record, all
// later old records stay; otherwise they are dropped. Bytes before the journal's safe_end were on
// the disk when the journal was written. The data of old records past safe_end is checked.
//
// Thread safety: one thread. Invariants: after the written records, the file has zeros, or old
// records in the right place. FILE appears only when the whole pack is on the disk.
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
  std::string scratch = "/var/tmp";  // the directory for slots that do not fit into memory
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
  // Reads the next bytes of the data. A count below n means the end. If the sum of all counts is
  // not stat.size, the entry fails with ESTALE.
  using Source = std::function<base::Result<std::size_t>(std::byte* to, std::size_t n)>;
  // Like add, but for data that is never in memory as a whole. If the source fails, nothing is
  // added, and the writer remains usable.
  base::Result<void> add_streamed(const PackContent& content, std::uint64_t size,
                                  const Source& source);

  // The n-th old record, counted from the current old record. Null: there is no such record.
  const OldRecord* old(std::size_t n = 0);
  // Takes over the first old record. False: the record is damaged, and the caller must add the
  // entry.
  base::Result<bool> adopt();

  // Completes the pack and gives it its name.
  base::Result<void> finish();
  // Stores the added entries on the disk, for a later run.
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
  // Called before new bytes are written after `end`. If the journal on the disk declares bytes
  // after `end` safe, it is rewritten.
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
      k_pack_records_begin;  // the buffer holds the file's bytes from here to fill_
  std::unique_ptr<PackScan> old_scan_;
  std::deque<OldRecord> old_;
  bool has_failed_in_source_ = false;
};

}  // namespace cube::cache
