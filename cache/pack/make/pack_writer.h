// Writes a pack: records one behind the other into FILE.partial, then the index, the footer, the
// header, and the name.
//
// A run goes on with the work of an earlier one: its records are `old` ones, given in their order.
// The caller adds entries in the one order of a pack and says of each whether the old record of
// that path is still true (adopt) or what to write (add). If an entry is written over an old one of
// the same place and length, the old ones behind it stay; else they are dropped. Bytes before the
// journal's safe_end were on the disk when that was written. The data of old records behind it is
// checked.
//
// Invariants: behind what is written lie zeros, or old records in the right place. FILE appears
// when all of it is on the disk. Thread safety: one thread.
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
  std::uint64_t arguments_hash = 0;  // what an earlier run left is of use where it had the same
  std::string scratch = "/var/tmp";  // where slots lie that are too many for memory
};

struct OldRecord {
  PackEntry entry;
  std::string path;
};

class PackWriter {
 public:
  // EWOULDBLOCK: another writer has it.
  static base::Result<std::unique_ptr<PackWriter>> open(const PackWriterOptions& options);

  struct PackContent {
    std::string_view path;
    RecordKind kind = RecordKind::file;
    FileStat stat{};
  };
  base::Result<void> add(const PackContent& content, std::span<const std::byte> data);
  // Gives the next bytes, fewer than asked for only at the end; as many as stat.size in all, or the
  // entry fails with ESTALE.
  using Source = std::function<base::Result<std::size_t>(std::byte* to, std::size_t n)>;
  // Data that is never in memory as a whole. If the source fails, nothing was added, and the writer
  // can be used on.
  base::Result<void> add_streamed(const PackContent& content, std::uint64_t size,
                                  const Source& source);

  // The old record that is n places ahead; null: none.
  const OldRecord* old(std::size_t n = 0);
  // The first old record becomes part of the pack. False: it is damaged, and the entry is to be
  // added.
  base::Result<bool> adopt();

  // All that was added, under its name.
  base::Result<void> finish();
  // The entries that were added are kept for a later run.
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
  // Before anything new comes behind `end`, where the disk may have a journal that calls it safe.
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
      k_pack_records_begin;  // what of the file it holds: from there to fill_
  std::unique_ptr<PackScan> old_scan_;
  std::deque<OldRecord> old_;
  bool has_failed_in_source_ = false;
};

}  // namespace cube::cache
