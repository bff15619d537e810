#include "cache/report/notes.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

namespace cube::cache {

void count_materialized(Region& region, std::uint32_t job, const char* call) {
  std::uint64_t name[2] = {};
  std::memcpy(name, call, std::min(std::strlen(call), sizeof name));
  for (CallCount& row : region.job_row(job).materialized_by) {
    std::uint64_t first = 0;
    if (row.name[0].compare_exchange_strong(first, name[0], std::memory_order_relaxed)) {
      row.name[1].store(name[1], std::memory_order_relaxed);
    } else if (first != name[0] || row.name[1].load(std::memory_order_relaxed) != name[1]) {
      continue;
    }
    row.count.fetch_add(1, std::memory_order_relaxed);
    return;
  }
}

void note_misspelled(Region& region, std::uint32_t job, std::string_view path) {
  JobRow& row = region.job_row(job);
  std::uint32_t none = 0;
  if (!row.misspelled_state.compare_exchange_strong(none, 1, std::memory_order_relaxed)) return;
  // Keeps the end of a long path, which says more than its beginning.
  constexpr std::string_view k_left_out = "...";
  constexpr std::size_t k_room = sizeof row.misspelled - 1;
  const bool fits = path.size() <= k_room;
  if (!fits) path.remove_prefix(path.size() - (k_room - k_left_out.size()));
  *fmt::format_to_n(row.misspelled, k_room, "{}{}", fits ? "" : k_left_out, path).out = '\0';
  // Pairs with the acquire in collect.
  row.misspelled_state.store(2, std::memory_order_release);
}

}  // namespace cube::cache
