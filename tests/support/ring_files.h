// Makes prefetched records in a ring without an engine.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cache/region/segments.h"
#include "tests/support/test_region.h"

namespace cube::tests {

inline base::Result<cache::Pin> put_in_ring(cache::RamTier& tier, std::string_view path,
                                            std::string_view data) {
  auto room = tier.reserve_in_ring(path.size(), data.size());
  if (!room) return base::fail(room.error().value);
  data.copy(reinterpret_cast<char*>(room->data()), data.size());
  cache::RecordContent content = content_for(path, data.size());
  content.prefetched = true;
  return publish(tier, std::move(*room), content);
}

// Opens the file like a program, and notes its first open. Returns true if it is cached with the
// right bytes.
inline bool open_right(cache::RamTier& tier, std::string_view path, std::string_view data) {
  const cache::Pin pin = find(tier, path);
  if (!pin || bytes_of(*pin) != data) return false;
  tier.ring().note_opened(*pin);
  return true;
}

inline cache::SegmentWord word_of(const cache::Region& region, std::uint32_t segment) {
  return cache::SegmentWord::of_word(region.segment_row(segment).word.load());
}

// Compares the counters of the header with those of the segments. If a process is killed while it
// publishes a record, the header's count of records stays too high by one, or its bytes by the size
// of this record. `killed` such processes are allowed.
inline std::string counters_of(const cache::Region& region, std::uint64_t killed = 0) {
  std::uint64_t records = 0, bytes = 0;
  for (std::uint32_t i = 0; i < region.layout().segment_count; ++i) {
    records += region.segment_row(i).records.load();
    bytes += region.segment_row(i).used_bytes.load();
  }
  const cache::RegionHeader& header = region.header();
  const std::uint64_t most_bytes = killed * region.layout().segment_bytes;
  const auto fits = [](std::uint64_t sum, std::uint64_t of_segments, std::uint64_t slack) {
    return sum >= of_segments && sum - of_segments <= slack;
  };
  if (fits(header.records.load(), records, killed) &&
      fits(header.used_bytes.load(), bytes, most_bytes))
    return "right";
  return "header: " + std::to_string(header.records.load()) + " records, " +
         std::to_string(header.used_bytes.load()) + " bytes; segments: " + std::to_string(records) +
         ", " + std::to_string(bytes);
}

}  // namespace cube::tests
