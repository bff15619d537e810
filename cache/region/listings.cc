#include "cache/region/listings.h"

#include <algorithm>
#include <cstring>

#include "cache/base/clock.h"
#include "cache/base/hash.h"

namespace cube::cache {
namespace {

// A program that has listed a directory may open only a few of its files. So files are fetched
// ahead only after k_files_that_tell first reads in the directory, and k_reads_that_tell first
// reads in all listed directories together.
constexpr std::uint32_t k_reads_that_tell = 8, k_files_that_tell = 2;

// The values of ListingSlot::state.
constexpr std::uint32_t k_free = 0, k_posted = 1, k_first_owner = 2;

std::uint32_t listing_second() {
  return static_cast<std::uint32_t>(base::coarse_monotonic_ns() / 1'000'000'000ULL);
}

std::uint32_t age_of(const ListedRow& row) {
  const std::uint32_t used = row.used.load(std::memory_order_relaxed), now = listing_second();
  return now > used ? now - used : 0;
}

void start_over(ListedRow& row) {
  for (auto* const count : {&row.read_kib, &row.early_kib, &row.fetched_kib, &row.files, &row.lead})
    count->store(0, std::memory_order_relaxed);
}

// How little a row is worth. A directory from which files are read is worth more than a directory
// that is only listed.
std::uint32_t uselessness(const ListedRow& row) {
  if (row.hash.load(std::memory_order_relaxed) == 0) return UINT32_MAX;
  const std::uint32_t age = std::min(age_of(row), UINT32_MAX / 2);
  return row.files.load(std::memory_order_relaxed) == 0 ? age + k_listing_is_old_s : age;
}

std::uint32_t kib_of(std::uint64_t bytes) {
  return static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>((bytes + 1023) / 1024, 1, UINT32_MAX / 4));
}

}  // namespace

ListedRow& Listings::row(std::uint64_t hash, std::uint32_t way) const {
  const std::uint32_t sets = region_->layout().listed_rows() / ListedRow::k_ways;
  return region_->listed_row(static_cast<std::uint32_t>(hash % sets) * ListedRow::k_ways + way);
}

ListedRow* Listings::find(std::uint64_t hash) const {
  for (std::uint32_t way = 0; hash != 0 && way < ListedRow::k_ways; ++way) {
    ListedRow& candidate = row(hash, way);
    if (candidate.hash.load(std::memory_order_acquire) == hash) return &candidate;
  }
  return nullptr;
}

void Listings::note_listed(std::string_view directory) {
  const std::uint64_t hash = base::hash_path(directory);
  if (hash == 0) return;
  if (ListedRow* const known = find(hash); known != nullptr) {
    // If the counts are old, they do not predict further reads.
    if (is_old(*known)) start_over(*known);
    known->used.store(listing_second(), std::memory_order_relaxed);
    return;
  }
  ListedRow* least = &row(hash, 0);
  for (std::uint32_t way = 1; way < ListedRow::k_ways; ++way) {
    ListedRow& other = row(hash, way);
    if (uselessness(other) > uselessness(*least)) least = &other;
  }
  // Frees the row before its counts are reset for the new directory. If this process dies in
  // between, it leaves a free row, not a row with wrong counts.
  std::uint64_t former = least->hash.load(std::memory_order_relaxed);
  if (former != 0 && !least->hash.compare_exchange_strong(former, 0, std::memory_order_acq_rel))
    return;
  start_over(*least);
  least->used.store(listing_second(), std::memory_order_relaxed);
  std::uint64_t free = 0;
  // Release: a process that finds the row does not see counts of the previous directory. Pairs with
  // the acquire in find.
  least->hash.compare_exchange_strong(free, hash, std::memory_order_release,
                                      std::memory_order_relaxed);
}

ListedRow* Listings::row_of_directory_of(std::string_view file) const {
  const std::size_t slash = file.rfind('/');
  return slash == std::string_view::npos ? nullptr : find(base::hash_path(file.substr(0, slash)));
}

void Listings::note_bytes(std::string_view file, std::uint64_t bytes) {
  if (ListedRow* const found = row_of_directory_of(file); found != nullptr)
    found->read_kib.fetch_add(kib_of(bytes), std::memory_order_relaxed);
}

bool Listings::note_read(std::string_view file, std::uint64_t bytes, bool was_fetched_ahead) {
  ListedRow* const found = row_of_directory_of(file);
  if (found == nullptr) return false;
  const std::uint32_t kib = kib_of(bytes);
  found->read_kib.fetch_add(kib, std::memory_order_relaxed);
  if (was_fetched_ahead) found->early_kib.fetch_add(kib, std::memory_order_relaxed);
  const std::uint32_t files = found->files.fetch_add(1, std::memory_order_relaxed) + 1;
  const std::uint32_t second = listing_second();
  if (found->used.load(std::memory_order_relaxed) != second)
    found->used.store(second, std::memory_order_relaxed);
  const std::uint32_t reads =
      region_->header().listed_reads.fetch_add(1, std::memory_order_relaxed) + 1;
  return files >= k_files_that_tell && reads >= k_reads_that_tell &&
         found->lead.load(std::memory_order_relaxed) != next_lead();
}

bool Listings::post(std::string_view directory) {
  if (directory.size() > sizeof(ListingSlot::path)) return false;
  const std::uint64_t hash = base::hash_path(directory);
  ListedRow* const listed = find(hash);
  if (listed == nullptr) return false;
  const std::uint32_t lead = next_lead();
  if (listed->lead.load(std::memory_order_relaxed) == lead) return true;
  const std::uint32_t mine = region_->own_slot() + k_first_owner;
  for (std::uint32_t i = 0; i < k_listing_slots; ++i) {
    ListingSlot& slot = region_->listing_slot(i);
    std::uint32_t state = k_free;
    if (!slot.state.compare_exchange_strong(state, mine, std::memory_order_acquire)) continue;
    slot.hash = hash;
    slot.length = static_cast<std::uint32_t>(directory.size());
    std::memcpy(slot.path, directory.data(), directory.size());
    // The swap fails if the slot was freed in the meantime. Release: pairs with the acquire in
    // take.
    state = mine;
    if (!slot.state.compare_exchange_strong(state, k_posted, std::memory_order_release,
                                            std::memory_order_relaxed))
      return false;
    // Notes the post only now. If the note came first and this process died before the post, no
    // process would ever post the directory. To post a directory twice does no harm.
    listed->lead.store(lead, std::memory_order_relaxed);
    return true;
  }
  return false;
}

void Listings::begin_lead() { region_->header().leads.fetch_add(1, std::memory_order_relaxed); }

bool Listings::take(std::string& directory) {
  for (std::uint32_t i = 0; i < k_listing_slots; ++i) {
    ListingSlot& slot = region_->listing_slot(i);
    if (slot.state.load(std::memory_order_acquire) != k_posted) continue;
    directory.assign(slot.path, std::min<std::size_t>(slot.length, sizeof slot.path));
    const bool is_whole = slot.hash == base::hash_path(directory);
    slot.state.store(k_free, std::memory_order_release);
    if (is_whole) return true;
  }
  return false;
}

void Listings::take_charge(ListedRow& row) {
  row.lead.store(next_lead(), std::memory_order_relaxed);
}

bool Listings::is_old(const ListedRow& row) const { return age_of(row) > k_listing_is_old_s; }

void forget_posts_of(const Region& region, std::uint32_t process) {
  for (std::uint32_t i = 0; i < k_listing_slots; ++i) {
    std::uint32_t state = process + k_first_owner;
    region.listing_slot(i).state.compare_exchange_strong(state, k_free, std::memory_order_release,
                                                         std::memory_order_relaxed);
  }
}

}  // namespace cube::cache
