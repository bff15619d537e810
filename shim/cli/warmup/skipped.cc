#include "shim/cli/warmup/skipped.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

namespace cube::cli {

using prefetch::Refusal;
using prefetch::Refused;

void add_row(std::vector<SkippedRow>& rows, SkippedRow row) {
  const auto found =
      std::find_if(rows.begin(), rows.end(), [&](const auto& r) { return r.reason == row.reason; });
  if (found != rows.end()) {
    found->count += row.count;
    found->bytes += row.bytes;
    found->missing += row.missing;
  } else {
    rows.push_back(std::move(row));
  }
}

void Skipped::add(NamedPaths& paths, const prefetch::RefusedFile& refused) {
  switch (refused.why) {
    case Refused::directory: paths.walk(refused.file); break;
    case Refused::missing: paths.refuse(Refusal::missing, refused.file, 0); break;
    case Refused::failed: paths.refuse(Refusal::unreadable, refused.file, refused.error); break;
    case Refused::not_a_file: paths.refuse(Refusal::not_a_file, refused.file, 0); break;
    case Refused::bad_range: paths.refuse(Refusal::bad_range, refused.file, 0); break;
    case Refused::too_large: add_own("larger than CUBESHIM_MAX_FILE", refused); break;
    case Refused::no_room: add_own("without room in the cache", refused); break;
    case Refused::busy: add_own("being written", refused); break;
  }
}

void Skipped::add_own(const char* reason, const prefetch::RefusedFile& refused) {
  const std::string named = prefetch::text_of_range(refused.file.path, refused.file.range);
  add_row(own_, {.reason = reason,
                 .count = 1,
                 .first = named,
                 .bytes = refused.bytes,
                 .missing = refused.missing});
}

std::vector<SkippedRow> Skipped::rows(const NamedPaths& paths) const {
  std::vector<SkippedRow> rows;
  for (std::size_t i = 0; i < paths.lists().size(); ++i) {
    const auto& list = *paths.lists()[i];
    for (std::size_t k = 0; k < prefetch::k_refusals; ++k) {
      const auto reason = static_cast<Refusal>(k);
      const auto& row = list.refusals().row(reason);
      if (row.count == 0) continue;
      std::string first = row.first;
      if (row.line != 0 && paths.is_list(i)) first += fmt::format(" (line {})", row.line);
      if (row.error != 0) first += fmt::format(": {}", std::strerror(row.error));
      add_row(rows, {std::string(prefetch::Refusals::name_of(reason)), row.count, first,
                     reason == Refusal::excluded});
    }
    if (list.error() != 0)
      add_row(rows,
              {"in a list that cannot be read further", 1, std::strerror(list.error()), false});
  }
  for (const auto& row : own_) add_row(rows, row);
  return rows;
}

}  // namespace cube::cli
