#include "cache/ram/writers.h"

#include "cache/base/hash.h"

namespace cube::cache {
namespace {

using Word = std::uint64_t;  // hash of the file:48 | how often it is open for writing:16
constexpr Word k_count = 0xffff;

Word hash_of(const FileStat& stat) { return base::hash_inode(stat.device(), stat.inode) & ~k_count; }
std::uint32_t stripe_index(Word word) { return static_cast<std::uint32_t>((word >> 16) % k_writer_stripes); }

// Counts `n` more for this file, in the place that it has or in a free one. False: there is none.
bool add(std::atomic<Word>* places, std::uint32_t count, Word hash, Word n) {
  for (const bool take_free : {false, true}) {
    for (std::uint32_t i = 0; i < count; ++i) {
      Word word = places[i].load(std::memory_order_seq_cst);
      // A place without writers belongs to nobody, whatever hash it still has.
      while (take_free ? (word & k_count) == 0 : (word & k_count) != 0 && (word & ~k_count) == hash) {
        if (places[i].compare_exchange_weak(word, take_free ? hash | n : word + n, std::memory_order_seq_cst)) return true;
      }
    }
  }
  return false;
}

// False: it was not counted here.
bool subtract(std::atomic<Word>* places, std::uint32_t count, Word hash, Word n) {
  for (std::uint32_t i = 0; i < count; ++i) {
    Word word = places[i].load(std::memory_order_seq_cst);
    while ((word & k_count) >= n && (word & ~k_count) == hash) {
      if (places[i].compare_exchange_weak(word, word - n, std::memory_order_seq_cst)) return true;
    }
  }
  return false;
}

void end(WriterStripe& stripe, Word hash, Word n) {
  if (subtract(stripe.writers, WriterStripe::k_places, hash, n)) return;
  // The same file may be counted in several places: beyond, or where two began at the same moment.
  for (; n > 0; --n) {
    if (!subtract(stripe.writers, WriterStripe::k_places, hash, 1)) stripe.others.fetch_sub(1, std::memory_order_seq_cst);
  }
}

}  // namespace

WriterStripe& writer_stripe_of(Region& region, const FileStat& stat) { return region.writer_stripe(stripe_index(hash_of(stat))); }

void writing_begins(Region& region, const FileStat& stat) {
  const Word hash = hash_of(stat);
  WriterStripe& stripe = writer_stripe_of(region, stat);
  if (!add(stripe.writers, WriterStripe::k_places, hash, 1)) stripe.others.fetch_add(1, std::memory_order_seq_cst);
  // Our own note last: killed in between, the file stays out of the cache, which is only slow.
  add(region.own_writers(region.own_slot()), k_own_writers, hash, 1);
}

void writing_ends(Region& region, const FileStat& stat) {
  const Word hash = hash_of(stat);
  subtract(region.own_writers(region.own_slot()), k_own_writers, hash, 1);
  end(writer_stripe_of(region, stat), hash, 1);
}

bool may_be_written(const WriterStripe& stripe, const FileStat& stat) {
  if (stripe.others.load(std::memory_order_seq_cst) != 0) return true;
  const Word hash = hash_of(stat);
  for (const auto& place : stripe.writers) {
    const Word word = place.load(std::memory_order_seq_cst);
    if ((word & k_count) != 0 && (word & ~k_count) == hash) return true;
  }
  return false;
}

void forget_writers_of(Region& region, std::uint32_t process_slot) {
  auto* const own = region.own_writers(process_slot);
  for (std::uint32_t i = 0; i < k_own_writers; ++i) {
    const Word word = own[i].exchange(0, std::memory_order_seq_cst);
    if ((word & k_count) == 0) continue;
    WriterStripe& stripe = region.writer_stripe(stripe_index(word));
    // A change of theirs may not have been noticed: what is fetched now is looked at again.
    stripe.epoch.fetch_add(1, std::memory_order_seq_cst);
    end(stripe, word & ~k_count, word & k_count);
  }
}

}  // namespace cube::cache
