#include "cache/fill/cache_parts.h"

namespace cube::cache {

void CacheParts::note_opened(const Record& record, bool waited_for_prefetch) {
  if (!ram.ring().note_opened(record)) return;
  stats().count(waited_for_prefetch ? base::Counter::prefetch_late : base::Counter::prefetch_early);
  if (fetches_ahead)
    Listings(region).note_read(record.path(), record.data_size, /*was_fetched_ahead=*/true);
}

std::optional<CacheParts::FromTier> CacheParts::fill_from_tier(std::string_view key,
                                                               const FileStat& stat,
                                                               std::byte* room,
                                                               bool with_remote) const {
  for (const Tiers* const some : {&tiers, &remote}) {
    if (some == &remote && !with_remote) break;
    for (Tier* const tier : *some) {
      if (const auto hash = tier->fill(key, stat, room); hash)
        return FromTier{tier, some == &remote, *hash};
    }
  }
  return std::nullopt;
}

}  // namespace cube::cache
