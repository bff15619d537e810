#include "cache/region/unserved_paths.h"

namespace cube::cache {
namespace {

// The value of a row that another thread is emptying.
constexpr std::uint64_t k_changes_hands = UINT64_MAX;

UnservedRow& row_for(const Region& region, std::uint64_t job) {
  return region.unserved_row(static_cast<std::uint32_t>(job % k_unserved_rows));
}

// Gives the row to the job. False: the row belongs to a newer job, or another thread is just taking
// it.
bool take(UnservedRow& row, std::uint64_t job) {
  std::uint64_t owner = row.job.load(std::memory_order_acquire);
  if (owner == job) return true;
  if (owner > job ||
      !row.job.compare_exchange_strong(owner, k_changes_hands, std::memory_order_acquire))
    return false;
  for (auto& path : row.first) path.state.store(0, std::memory_order_relaxed);
  // Pairs with the acquire above and in unserved_of.
  row.job.store(job, std::memory_order_release);
  return true;
}

}  // namespace

void note_unserved(const Region& region, std::uint32_t job, std::size_t reason,
                   std::string_view path) {
  const std::uint64_t number = region.job_row(job).last_used;
  UnservedRow& row = row_for(region, number);
  if (take(row, number)) note_path(row.first[reason], path);
}

const UnservedRow* unserved_of(const Region& region, std::uint32_t job) {
  const std::uint64_t number = region.job_row(job).last_used;
  const UnservedRow& row = row_for(region, number);
  return row.job.load(std::memory_order_acquire) == number ? &row : nullptr;
}

}  // namespace cube::cache
