// The interface between the cache and a store of records beside RAM, such as a local disk. If a
// file is missing in RAM, a tier returns the file's bytes, provided that the origin's stat proves
// that the stored record matches. For an immutable origin, the origin's id is the proof. The tier
// does not check permissions, so the caller must. Invariant: fill() returns the bytes that the
// origin had with that inode, size, mtime and ctime. Thread-safe. visit, fill and the changes take
// no lock, and allocate only by mmap. The changes are async-signal-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "cache/base/result.h"
#include "cache/base/settings/tier_kinds.h"
#include "cache/record/file_stat.h"
#include "cache/record/record.h"
#include "cache/region/large/chunks.h"
#include "cache/region/ram/ram_tier.h"

namespace cube::cache {

class Tier {
 public:
  enum class Verdict : std::uint8_t {
    taken,    // visit ends
    refused,  // an older record may match
    outdated  // the record leaves the tier
  };
  class Judge {
   public:
    // program: a program waits for the record. ahead: no program waits for it yet. many: the record
    // is one of many that are fetched at the same time, and may_answer() has returned true.
    enum class For : std::uint8_t { program, ahead, many };
    // `wanted` is the kind of record that the judge wants. A tier may also pass records of other
    // kinds to it.
    explicit Judge(RecordKind wanted, For whom = For::program) : wanted_(wanted), whom_(whom) {}
    RecordKind wanted() const { return wanted_; }
    For whom() const { return whom_; }
    // The stat of the block's file, if the caller will fetch the whole block when no tier has it.
    // Null: the wanted record is not a block, or perhaps only a part of the block will be fetched.
    const FileStat* whole_block_of() const { return whole_block_of_; }
    // Judges a record. The judge may read the record only until this returns.
    virtual Verdict judge(const Record& record) = 0;

   protected:
    ~Judge() = default;
    void bring_whole_block_of(const FileStat& stat) { whole_block_of_ = &stat; }

   private:
    RecordKind wanted_;
    For whom_;
    const FileStat* whole_block_of_ = nullptr;
  };
  // Decides whether this record has the current bytes of its file. `stat`: the stat that the origin
  // reports for the file.
  static Verdict compare(const Record& record, const FileStat& stat);

  Tier(const Tier&) = delete;
  Tier& operator=(const Tier&) = delete;

  // An index into base::k_tier_kinds.
  std::size_t kind() const { return kind_; }
  base::Counter hits() const { return base::k_tier_kinds[kind_].hits; }

  // Whether this record, which visit has passed to the judge, proves the file's content without a
  // revalidation at the origin. If the record proves the content, the stat in the record is the
  // stat of the file.
  virtual bool needs_no_look(const Record&) const { return false; }
  // Whether the tier may have records for which needs_no_look() is true.
  virtual bool may_need_no_look() const { return false; }
  // Whether the tier may have a record of this path. Reads only the index.
  virtual bool may_have(std::string_view /*key*/) const { return true; }
  // Whether asking for a file of this path is worthwhile. Call it once before a visit with a judge
  // for For::many.
  virtual bool may_answer(std::string_view /*key*/) { return true; }
  // Like compare(), but by the rules of this tier.
  virtual Verdict judge_by_stat(const Record& record, const FileStat& stat) {
    return compare(record, stat);
  }
  // Whether the record has the version of the file that has this stat at the origin. A record of
  // another node may have another inode number.
  virtual bool is_of_version(const Record& record, const FileStat& stat);
  // Whether the inode numbers in the data of the record are those that this node sees.
  virtual bool has_our_inodes(const Record&) const { return true; }
  // Notes that a program of this process has fetched the record from the origin.
  virtual void note_fetched(std::string_view /*key*/, const Pin&) {}
  // Like note_fetched, but for a block of a large file. The block must be whole in the region.
  // `name` is BlockName::text; `at` is the offset of the block's first byte.
  virtual void note_block_fetched(std::string_view /*name*/, const FileKey& /*file*/,
                                  std::uint64_t /*at*/) {}
  // Notes that a program that got no answer from this tier will not fetch the whole record. For a
  // block, `key` is the BlockName.
  virtual void note_not_fetched(std::string_view /*key*/) {}
  // Whether the tier would accept records from the origin although the memory is full.
  virtual bool takes_offers() const { return false; }

  // Passes the records of this path to the judge, newest first, until the judge takes a record.
  // Returns false if the judge takes none.
  virtual bool visit(std::string_view key, Judge& judge) = 0;
  // Copies stat.size bytes to `room`, and returns the hash against which the bytes were checked.
  // Empty: the tier has no matching record.
  std::optional<std::uint64_t> fill(std::string_view key, const FileStat& stat, std::byte* room);

  // Writes the records of a segment that lie at these offsets. Only one thread of the node calls
  // this, in the background. On failure, returns the errno.
  virtual base::Result<void> offer(std::span<const std::byte> segment,
                                   std::span<const std::uint64_t> offsets) = 0;
  // Called after the last offer. Makes all records immediately available to the next job.
  virtual void end_offers() = 0;

  // Changes: call these functions after the records in RAM have been marked.
  virtual void content_changed(std::string_view key, const FileStat* stat) = 0;
  virtual void tree_changed() = 0;

  // Sets all fields except TierStatus::unwritten.
  virtual base::TierStatus status() const = 0;
  // For a forked child. The object must not be used afterwards.
  virtual void abandon() = 0;

 protected:
  explicit Tier(std::size_t kind) : kind_(kind) {}
  ~Tier() = default;

 private:
  std::size_t kind_;
};

// The tiers of a cache, in the order in which they are asked. Thread safety: immutable after the
// last add().
class Tiers {
 public:
  void add(Tier& tier) { all_[count_++] = &tier; }
  bool is_empty() const { return count_ == 0; }
  bool may_have(std::string_view key) const {
    return std::any_of(begin(), end(), [key](const Tier* tier) { return tier->may_have(key); });
  }
  bool take_offers() const {
    return std::any_of(begin(), end(), [](const Tier* tier) { return tier->takes_offers(); });
  }
  Tier* const* begin() const { return all_; }
  Tier* const* end() const { return all_ + count_; }

 private:
  Tier* all_[base::k_tiers] = {};
  std::size_t count_ = 0;
};

}  // namespace cube::cache
