#include "cache/report/notes.h"

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
  note_path(region.job_row(job).misspelled, path);
}

}  // namespace cube::cache
