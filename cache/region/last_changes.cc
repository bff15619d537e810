#include "cache/region/last_changes.h"

#include <algorithm>

#include "cache/base/clock.h"
#include "cache/base/hash.h"

namespace cube::cache {
namespace {

constexpr int k_time_bits = 47, k_unit_bits = 13;

std::uint64_t word_of(std::uint64_t hash, std::uint64_t ns) {
  return hash >> k_time_bits << k_time_bits | ns >> k_unit_bits;
}

std::uint64_t inode_hash_of(const FileStat& stat) {
  return base::hash_inode(stat.device(), stat.inode);
}

// Whether a file has changed since its record was last verified, according to a word of the table.
// `unknown`: a change of another inode has overwritten the word since then.
enum class Since : std::uint8_t { unchanged, changed, unknown };

Since since(const std::atomic<std::uint64_t>& change, std::uint64_t hash, const Record& record) {
  const std::uint64_t word = change.load(std::memory_order_acquire),
                      verified = record.verified_ns.load(std::memory_order_relaxed),
                      time_mask = (std::uint64_t{1} << k_time_bits) - 1;
  // Changes within the same unit of time count as later.
  if (word == 0 || (word & time_mask) < verified >> k_unit_bits) return Since::unchanged;
  return word >> k_time_bits == hash >> k_time_bits ? Since::changed : Since::unknown;
}

// The record that gets further marks: the given record, or its successor in the index. If the index
// has lost the successor, too, uses the given record: it tells when it was verified, and the table
// has the later changes.
class MarkedRecord {
 public:
  MarkedRecord(const RamTier& ram, const Record& record)
      : ram_(ram),
        successor_(record.was_replaced() ? ram.find_successor(record) : Pin()),
        record_(successor_ ? *successor_ : record),
        hash_(inode_hash_of(record.stat)),
        row_(ram.region().last_change(hash_)) {}
  bool may_be_gone() const {
    return record_.may_be_gone() || since(row_.gone, hash_, record_) == Since::changed;
  }
  bool was_changed_in_place() const {
    if (record_.was_changed_in_place()) return true;
    const Since in_place = since(row_.in_place, hash_, record_);
    // A record in the index has all its marks. A record that has lost its place may have missed a
    // mark, so it counts as changed in place, unless the file may have been removed.
    return in_place == Since::changed ||
           (in_place == Since::unknown && since(row_.gone, hash_, record_) == Since::unchanged &&
            !ram_.is_in_index(record_));
  }

 private:
  const RamTier& ram_;
  const Pin successor_;
  const Record& record_;
  const std::uint64_t hash_;
  const LastChange& row_;
};

}  // namespace

void note_last_change(Region& region, const FileStat& stat, std::uint32_t how,
                      std::uint64_t at_ns) {
  if ((how & (Record::k_in_place | Record::k_unlinked)) == 0) return;
  const std::uint64_t hash = inode_hash_of(stat),
                      word = word_of(hash, std::min(at_ns, base::boot_ns()));
  LastChange& row = region.last_change(hash);
  const auto note = [&](std::atomic<std::uint64_t>& to) {
    std::uint64_t old = to.load(std::memory_order_relaxed);
    // Does not overwrite a later change of this inode.
    while ((old >> k_time_bits != word >> k_time_bits || old < word) &&
           !to.compare_exchange_weak(old, word, std::memory_order_release,
                                     std::memory_order_relaxed)) {
    }
  };
  if ((how & Record::k_unlinked) != 0) note(row.gone);
  if ((how & Record::k_in_place) != 0) note(row.in_place);
}

bool may_be_gone(const RamTier& ram, const Record& record) {
  return MarkedRecord(ram, record).may_be_gone();
}

bool was_changed_and_kept(const RamTier& ram, const Record& record) {
  const MarkedRecord marked(ram, record);
  return !marked.may_be_gone() && marked.was_changed_in_place();
}

}  // namespace cube::cache
