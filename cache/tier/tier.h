// The seam between the cache and a place that keeps records beside RAM: a local disk. A tier
// returns the bytes of a file missing in RAM if the origin's stat proves that the stored record
// matches. For an immutable origin, its id proves it. The tier does not check permissions; its
// caller must. Invariants: fill() gives what the origin held at that inode, size, mtime and ctime.
// Thread safety: all of it. visit, fill and the changes take no lock, and allocate by mmap alone.
// The changes are async- signal-safe.
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
    taken,    // the last one
    refused,  // there may be an older one that fits
    outdated  // it leaves the tier
  };
  class Judge {
   public:
    // A program waits for it; nobody does yet; or it is one of many that are fetched at once, and
    // may_answer() was true.
    enum class For : std::uint8_t { program, ahead, many };
    // Records of this kind are wanted; a tier may show others as well.
    explicit Judge(RecordKind wanted, For whom = For::program) : wanted_(wanted), whom_(whom) {}
    RecordKind wanted() const { return wanted_; }
    For whom() const { return whom_; }
    // The caller brings a whole block of a file with this stat, if no tier has it. Null: it is no
    // block, or perhaps a part of one.
    const FileStat* whole_block_of() const { return whole_block_of_; }
    // The record is the judge's to read until it returns.
    virtual Verdict judge(const Record& record) = 0;

   protected:
    ~Judge() = default;
    void bring_whole_block_of(const FileStat& stat) { whole_block_of_ = &stat; }

   private:
    RecordKind wanted_;
    For whom_;
    const FileStat* whole_block_of_ = nullptr;
  };
  // Is it proof that the bytes of this record are what the file holds, if the origin gives it this
  // stat?
  static Verdict compare(const Record& record, const FileStat& stat);

  Tier(const Tier&) = delete;
  Tier& operator=(const Tier&) = delete;

  // Which of base::k_tier_kinds it is.
  std::size_t kind() const { return kind_; }
  base::Counter hits() const { return base::k_tier_kinds[kind_].hits; }

  // Is this record, which visit has shown, proof of what the file holds, without a look at the
  // origin? Its stat is the file's then.
  virtual bool needs_no_look(const Record&) const { return false; }
  // Are there such records at all?
  virtual bool may_need_no_look() const { return false; }
  // May it have a record of this path? It looks into its index alone.
  virtual bool may_have(std::string_view /*key*/) const { return true; }
  // Is it worth asking for a file of this path? To be asked once before visit with a judge
  // For::many.
  virtual bool may_answer(std::string_view /*key*/) { return true; }
  // The same if the origin gives the file this stat.
  virtual Verdict judge_by_stat(const Record& record, const FileStat& stat) {
    return compare(record, stat);
  }
  // Is the record of the version of its file that the origin gives this stat? Other nodes may see
  // other inode numbers.
  virtual bool is_of_version(const Record& record, const FileStat& stat);
  // Are inode numbers in its data those that this node sees?
  virtual bool has_our_inodes(const Record&) const { return true; }
  // A program of this process has fetched it from the origin.
  virtual void note_fetched(std::string_view /*key*/, const Pin&) {}
  // The same of a block of a large file, which is in the region as a whole. `name`:
  // BlockName::text; `at`: its first byte.
  virtual void note_block_fetched(std::string_view /*name*/, const FileKey& /*file*/,
                                  std::uint64_t /*at*/) {}
  // It has asked this tier in vain, and does not fetch it as a whole after all. `key`: of a block,
  // its name.
  virtual void note_not_fetched(std::string_view /*key*/) {}
  // Would it take what comes from the origin, though the memory is full?
  virtual bool takes_offers() const { return false; }

  // Shows the records of this path, newest first, until the judge takes one. False: it has taken
  // none.
  virtual bool visit(std::string_view key, Judge& judge) = 0;
  // stat.size bytes to `room`, and the hash that they were checked by; nothing: there are none for
  // it.
  std::optional<std::uint64_t> fill(std::string_view key, const FileStat& stat, std::byte* room);

  // For one thread of the node, in the background. Writes the records of a segment that lie at
  // these offsets. The errno of what ended it.
  virtual base::Result<void> offer(std::span<const std::byte> segment,
                                   std::span<const std::uint64_t> offsets) = 0;
  // Nothing is offered any more. A next job finds all of it at once.
  virtual void end_offers() = 0;

  // The records in RAM are marked already.
  virtual void content_changed(std::string_view key, const FileStat* stat) = 0;
  virtual void tree_changed() = 0;

  // But for TierStatus::unwritten.
  virtual base::TierStatus status() const = 0;
  // In a forked child: the object is then dead.
  virtual void abandon() = 0;

 protected:
  explicit Tier(std::size_t kind) : kind_(kind) {}
  ~Tier() = default;

 private:
  std::size_t kind_;
};

// The tiers of a cache, in the order in which they are asked. Thread safety: nothing changes after
// the last add().
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
