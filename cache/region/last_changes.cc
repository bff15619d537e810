#include "cache/region/last_changes.h"

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

// Whether the file with this hash was changed after the record was verified. If both words contain
// this hash, the larger word has the later time. A change in the same unit of time as the
// verification counts as later.
bool is_since(const std::atomic<std::uint64_t>& change, std::uint64_t hash, const Record& record) {
  const std::uint64_t word = change.load(std::memory_order_acquire),
                      verified = word_of(hash, record.verified_ns.load(std::memory_order_relaxed));
  return word >> k_time_bits == hash >> k_time_bits && word >= verified;
}

bool has_gone(const Region& region, const Record& record) {
  const std::uint64_t hash = inode_hash_of(record.stat);
  return record.may_be_gone() || is_since(region.last_change(hash).gone, hash, record);
}

// The record that gets further marks: the given record, or the record that has replaced it in the
// index. False: the given record was replaced, and the index no longer has its successor.
class MarkedRecord {
 public:
  MarkedRecord(const RamTier& ram, const Record& record)
      : successor_(record.was_replaced() ? ram.find_successor(record) : Pin()),
        record_(!record.was_replaced() ? &record
                : successor_           ? &*successor_
                                       : nullptr) {}
  explicit operator bool() const { return record_ != nullptr; }
  const Record& operator*() const { return *record_; }
  const Record* operator->() const { return record_; }

 private:
  Pin successor_;
  const Record* record_;
};

}  // namespace

void note_last_change(Region& region, const FileStat& stat, std::uint32_t how) {
  if ((how & (Record::k_in_place | Record::k_unlinked)) == 0) return;
  const std::uint64_t hash = inode_hash_of(stat), word = word_of(hash, base::boot_ns());
  LastChange& row = region.last_change(hash);
  if ((how & Record::k_unlinked) != 0) row.gone.store(word, std::memory_order_release);
  if ((how & Record::k_in_place) != 0) row.in_place.store(word, std::memory_order_release);
}

bool may_be_gone(const RamTier& ram, const Record& record) {
  const MarkedRecord marked(ram, record);
  return !marked || has_gone(ram.region(), *marked);
}

bool was_changed_and_kept(const RamTier& ram, const Record& record) {
  const MarkedRecord marked(ram, record);
  if (!marked || has_gone(ram.region(), *marked)) return false;
  const std::uint64_t hash = inode_hash_of(marked->stat);
  return marked->was_changed_in_place() ||
         is_since(ram.region().last_change(hash).in_place, hash, *marked);
}

}  // namespace cube::cache
