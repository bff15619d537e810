// The interface between the cache and a store of records beside RAM, such as a local disk. If RAM
// lacks a file, a tier can return the file's bytes. The origin's stat must prove that the tier's
// record is current; for an immutable origin, the origin's id is the proof. The tier does not check
// permissions, so the caller must check them. Invariant: fill() returns the bytes that the file had
// when the origin reported this inode, size, mtime and ctime. Thread-safe. visit, fill,
// content_changed and tree_changed take no lock, and allocate only by mmap. content_changed and
// tree_changed are async-signal-safe.
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
    // `program`: a program waits for the record. `ahead`: no program waits for it yet. `many`: like
    // `ahead`, for one of many records that are fetched at the same time; may_answer() must have
    // returned true.
    enum class For : std::uint8_t { program, ahead, many };
    // `wanted` is the kind of record that the judge wants. But a tier may pass records of other
    // kinds to the judge, too.
    explicit Judge(RecordKind wanted, For whom = For::program) : wanted_(wanted), whom_(whom) {}
    RecordKind wanted() const { return wanted_; }
    For whom() const { return whom_; }
    // The stat of the block's file, if the caller will fetch the whole block from the origin if no
    // tier has it. Null: the wanted record is not a block, or the caller may fetch only a part of
    // the block.
    const FileStat* whole_block_of() const { return whole_block_of_; }
    // Judges a record. The record is valid only until this function returns.
    virtual Verdict judge(const Record& record) = 0;

   protected:
    ~Judge() = default;
    void bring_whole_block_of(const FileStat& stat) { whole_block_of_ = &stat; }

   private:
    RecordKind wanted_;
    For whom_;
    const FileStat* whole_block_of_ = nullptr;
  };
  // Compares a record with the origin's stat of the file, and decides whether the record has the
  // current bytes of the file.
  static Verdict compare(const Record& record, const FileStat& stat);

  Tier(const Tier&) = delete;
  Tier& operator=(const Tier&) = delete;

  // An index into base::k_tier_kinds.
  std::size_t kind() const { return kind_; }
  base::Counter hits() const { return base::k_tier_kinds[kind_].hits; }

  // Whether the origin need not be asked about this record, which visit has passed to the judge. If
  // so, the record has the current bytes, and its stat is the current stat of the file.
  virtual bool needs_no_look(const Record&) const { return false; }
  // Whether the tier may have records for which needs_no_look() is true.
  virtual bool may_need_no_look() const { return false; }
  // Whether the tier may have a record of this path. Reads only the index.
  virtual bool may_have(std::string_view /*key*/) const { return true; }
  // Whether it is worthwhile to ask the tier for the file at this path. Call it exactly once before
  // a visit with a judge for For::many.
  virtual bool may_answer(std::string_view /*key*/) { return true; }
  // Like compare(), but by the rules of this tier.
  virtual Verdict judge_by_stat(const Record& record, const FileStat& stat) {
    return compare(record, stat);
  }
  // Decides whether the record and this stat of the origin belong to the same version of a file.
  // Refuses a record of another node whose inode number differs, if the record may still be right.
  virtual Verdict judge_version(const Record& record, const FileStat& stat);
  // Whether the inode numbers in the data of the record are those that this node sees.
  virtual bool has_our_inodes(const Record&) const { return true; }
  // Notes that a program of this process has fetched the record from the origin.
  virtual void note_fetched(std::string_view /*key*/, const Pin&) {}
  // Like note_fetched, but for a block of a large file, all of which must be in the region. `name`
  // is BlockName::text; `at` is the offset of the block's first byte.
  virtual void note_block_fetched(std::string_view /*name*/, const FileKey& /*file*/,
                                  std::uint64_t /*at*/) {}
  // Notes that a program that has asked this tier in vain will not fetch the whole file or block.
  // For a block, `key` is BlockName::text.
  virtual void note_not_fetched(std::string_view /*key*/) {}
  // Whether the tier would accept records that were fetched from the origin while RAM is full.
  virtual bool takes_offers() const { return false; }

  // Passes the records of this path to the judge, newest first, until the judge takes one of them.
  // Returns false if the judge takes none of them.
  virtual bool visit(std::string_view key, Judge& judge) = 0;
  // Copies the bytes of the file with this stat to `room`, and returns the hash against which they
  // were checked. Empty: the tier has no matching record.
  std::optional<std::uint64_t> fill(std::string_view key, const FileStat& stat, std::byte* room);

  // Writes the records at these offsets of a segment to the tier. Only one background thread of the
  // node calls this function.
  virtual base::Result<void> offer(std::span<const std::byte> segment,
                                   std::span<const std::uint64_t> offsets) = 0;
  // Called after the last offer. After it, the next job can use all offered records immediately.
  virtual void end_offers() = 0;

  // Call these two functions after a change, when the records in RAM have been marked.
  // tree_changed: many paths may name other files now.
  virtual void content_changed(std::string_view key, const FileStat* stat) = 0;
  virtual void tree_changed() = 0;

  // Sets all fields except TierStatus::unwritten.
  virtual base::TierStatus status() const = 0;
  // Call it in a forked child. The object must not be used afterwards.
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
