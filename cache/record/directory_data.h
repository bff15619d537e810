// The data of records about a directory. DirectoryData is the data of a record of kind directory.
// It consists of the directory's entries in the form of getdents64, and a hash table that finds an
// entry by its name. StatTable is the data of a record of kind stat. It consists of the stats of
// the same entries, in the same order, and the targets of links. Thread safety: the data does not
// change after it was written. Async-signal-safe, no allocation. No function reads outside the
// data, even if the data is damaged.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "cache/record/file_stat.h"
#include "cache/record/record.h"

namespace cube::cache {

class DirectoryData {
 public:
  struct Entry {
    std::uint32_t place = 0;  // among the entries, from 0 on
    std::uint64_t inode = 0;
    std::uint8_t type = 0;  // d_type of dirent (DT_REG ...)
    std::string_view name;

    bool is_dots() const { return name == "." || name == ".."; }
  };

  // Reads the entries in the order of the directory. Stops at the first bytes that are not an
  // entry.
  class Reader {
   public:
    explicit Reader(std::span<const std::byte> entries) : rest_(entries) {}
    // False: no entry is left.
    bool next(Entry& entry);

   private:
    std::span<const std::byte> rest_;
  };

  // The number of entries in these bytes. Empty: the bytes do not consist of whole entries.
  static std::optional<std::uint32_t> count_of(std::span<const std::byte> entries);
  static std::uint64_t bytes_for(std::uint32_t count, std::uint64_t entries_bytes);
  // Writes the data. `to` must be a multiple of 8 and must have room for bytes_for().
  // `proves_negative_entries`: a name does not exist in the directory if it equals no entry,
  // regardless of case. `has_true_times`: every change of the entries also changes the directory's
  // stat.
  struct Proves {
    bool proves_negative_entries = false, has_true_times = false;
  };
  static void write(std::byte* to, std::span<const std::byte> entries, std::uint32_t count,
                    const Proves& proves);

  // Empty: the record has another kind, or is damaged.
  static std::optional<DirectoryData> of(const Record& record);

  std::uint32_t count() const { return count_; }
  bool proves_negative_entries() const { return proves_.proves_negative_entries; }
  bool has_true_times() const { return proves_.has_true_times; }
  std::span<const std::byte> entries() const { return {entries_, entries_bytes_}; }
  std::optional<Entry> find(std::string_view name) const;
  // Whether an entry equals the name, regardless of the case of ASCII letters.
  bool has_in_any_case(std::string_view name) const;
  std::optional<Entry> at(std::uint32_t place) const;

 private:
  struct Head;

  template <typename Wanted>
  std::optional<Entry> find_if(std::string_view name, Wanted&& wanted) const;

  const std::uint32_t* slots_ = nullptr;   // a hash table of place + 1 by lower-case name; 0: free
  const std::uint32_t* begins_ = nullptr;  // the offset of each entry, in bytes
  const std::byte* entries_ = nullptr;
  std::uint32_t slot_count_ = 0, count_ = 0;
  std::uint64_t entries_bytes_ = 0;
  Proves proves_;
};

class StatTable {
 public:
  struct Entry {
    FileStat stat;            // the stat of the name itself: a link is not followed
    std::uint64_t looked_ns;  // base::boot_ns, before the origin was asked; 0: nothing is known
    std::uint32_t changes;    // WriterStripe::epoch of the file at `looked_ns`
    std::uint32_t target;     // for a link: the offset of its target among the targets, plus 1; 0:
                              // not known
  };

  static std::uint64_t bytes_for(std::uint32_t count, std::uint64_t target_bytes) {
    return sizeof(Head) + std::uint64_t{count} * sizeof(Entry) + (target_bytes + 7) / 8 * 8;
  }
  // Identifies the listing to which a table belongs. The hash covers the entries and the times of
  // the directory. The entries alone do not suffice, because a file that replaces another file can
  // get the same inode.
  static std::uint64_t hash_of_listing(const Record& listing);
  // `targets`: the targets of links, each followed by a zero.
  static void write(std::byte* to, std::uint64_t listing_hash, std::span<const Entry> entries,
                    std::string_view targets);
  // Null: the record is not a table of this listing, the table has no such place, or nothing is
  // known about the entry.
  static const Entry* find(const Record& record, std::uint64_t listing_hash, std::uint32_t place);
  // The target of an entry that was found in this record. Empty: nothing is known.
  static std::string_view target_of(const Record& record, const Entry& entry);

 private:
  struct Head {
    std::uint64_t listing_hash;
    std::uint32_t count, target_bytes;
  };
};

}  // namespace cube::cache
