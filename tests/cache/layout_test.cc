// The places of the tables of a region.
#include "cache/region/layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "cache/record/record.h"

namespace cube::cache {
namespace {

constexpr std::uint64_t k_mib = 1 << 20;
// The smallest size, both sides of each change of segment size, odd sizes, the largest.
const std::vector<std::uint64_t>& sizes() {
  static const auto* const all = [] {
    auto* const list = new std::vector<std::uint64_t>;
    for (std::uint64_t mib = 8; mib <= 2100; ++mib) list->push_back(mib * k_mib);
    for (const std::uint64_t mib : {255, 256, 257, 2047, 2048, 2049}) {
      for (const int delta : {-1, 1, 4096, 12345})
        list->push_back(mib * k_mib + static_cast<std::uint64_t>(delta));
    }
    for (std::uint64_t gib = 3; gib < 5000; gib = gib * 3 / 2) list->push_back(gib << 30);
    std::sort(list->begin(), list->end());
    return list;
  }();
  return *all;
}

TEST(Layout, FitsIntoTheBytesItIsGiven) {
  for (const std::uint64_t bytes : sizes()) {
    const RegionLayout layout = layout_for(bytes);
    ASSERT_LE(layout.file_bytes, bytes);
    ASSERT_GE(layout.segment_count, 1U);
    ASSERT_LT(layout.segment_count, 1U << 18) << "an index slot has 18 bits";
    ASSERT_LE(layout.segment_bytes / 64, 1U << 18) << "an index slot has 18 bits";
    ASSERT_EQ(layout.data % (2 * k_mib), 0U);
    ASSERT_EQ(layout.file_bytes,
              layout.data + std::uint64_t{layout.segment_bytes} * layout.segment_count);
  }
}

TEST(Layout, UsesMostOfTheBytesForData) {
  for (const std::uint64_t bytes : sizes()) {
    const RegionLayout layout = layout_for(bytes);
    ASSERT_GE(layout.file_bytes + layout.segment_bytes + 2 * k_mib, bytes)
        << "whole segments are left out";
    if (bytes < 1024 * k_mib) continue;
    // The remaining bytes are too few for one more segment.
    ASSERT_GE(layout.file_bytes - layout.data + layout.segment_bytes, bytes / 100 * 95) << bytes;
  }
}

TEST(Layout, HoldsNoLessWithMoreBytes) {
  std::uint64_t last = 0, last_bytes = 0;
  for (const std::uint64_t bytes : sizes()) {
    const RegionLayout layout = layout_for(bytes);
    const std::uint64_t data = layout.file_bytes - layout.data;
    // A larger segment may cost one segment and the end of a huge page.
    ASSERT_GE(data + layout.segment_bytes + 2 * k_mib, last) << last_bytes << " -> " << bytes;
    last = data;
    last_bytes = bytes;
  }
}

// Without its tables, a region of 256 MiB or 2 GiB is smaller than the size for which its segments
// are made.
TEST(Layout, FollowsFromSegmentSizeAndCount) {
  for (const std::uint64_t bytes : sizes()) {
    const RegionLayout layout = layout_for(bytes);
    ASSERT_EQ(layout, layout_of(layout.segment_bytes, layout.segment_count)) << bytes;
  }
  for (const auto& [segment_bytes, count] : {std::pair{0U, 1U},
                                             {4096U, 1U},
                                             {2U << 20, 0U},
                                             {2U << 20, 1U << 18},
                                             {2U << 20, UINT32_MAX}}) {
    EXPECT_EQ(layout_of(segment_bytes, count), RegionLayout{});
  }
}

static_assert(k_index_tables == 5);

TEST(Layout, TablesDoNotOverlap) {
  for (const std::uint64_t bytes : sizes()) {
    const RegionLayout l = layout_for(bytes);
    const std::pair<std::uint64_t, std::uint64_t> tables[] = {
        {0, sizeof(RegionHeader)},
        {l.jobs, sizeof(JobRow) * (l.job_rows + 1)},
        {l.processes, sizeof(ProcessSlot) * l.process_slots},
        {l.pins, sizeof(std::uint32_t) * l.segment_count * l.process_slots},
        {l.lanes, sizeof(LaneRow) * l.process_lanes * l.process_slots},
        {l.segments, sizeof(SegmentRow) * l.segment_count},
        {l.writers, sizeof(WriterStripe) * k_writer_stripes},
        {l.own_writers, sizeof(std::uint64_t) * k_own_writers * l.process_slots},
        {l.left_writers, sizeof(LeftWriter) * k_left_writers},
        {l.last_changes, sizeof(LastChange) * l.last_change_rows()},
        {l.flights, sizeof(FlightSlot) * k_flight_slots},
        {l.unread, std::uint64_t{l.segment_bytes} * l.segment_count / k_unread_grain / 8},
        {l.misses, sizeof(std::uint64_t) * k_recent_misses},
        {l.listings, sizeof(ListingSlot) * k_listing_slots},
        {l.listed, sizeof(ListedRow) * l.listed_rows()},
        {l.index[0], sizeof(IndexBucket) * l.bucket_count[0]},
        {l.index[1], sizeof(IndexBucket) * l.bucket_count[1]},
        {l.index[2], sizeof(IndexBucket) * l.bucket_count[2]},
        {l.index[3], sizeof(IndexBucket) * l.bucket_count[3]},
        {l.index[4], sizeof(IndexBucket) * l.bucket_count[4]},
        {l.data, 0},
    };
    for (std::size_t i = 0; i + 1 < std::size(tables); ++i) {
      ASSERT_LE(tables[i].first + tables[i].second, tables[i + 1].first)
          << "table " << i << " of " << bytes;
      ASSERT_EQ(tables[i].first % 64, 0U);
    }
  }
}

// The index takes 16 to 32 bytes of memory for each file of 4 KiB on average, record header and
// path included.
TEST(Layout, IndexAndSegmentTablesTakeAtMost32BytesAFile) {
  double most = 0;
  for (const std::uint64_t bytes : sizes()) {
    const RegionLayout l = layout_for(bytes);
    if (bytes < 64 * k_mib) continue;  // the fixed tables are larger than the index
    const double files = static_cast<double>(l.file_bytes - l.data) / 4096;
    double buckets = 0;
    // The last table gets memory only if files are smaller.
    for (std::uint32_t t = 0; t + 1 < k_index_tables; ++t) buckets += l.bucket_count[t];
    const double table_bytes =
        static_cast<double>(sizeof(IndexBucket)) * buckets +
        static_cast<double>(sizeof(SegmentRow) + sizeof(std::uint32_t) * l.process_slots) *
            l.segment_count;
    most = std::max(most, table_bytes / files);
    ASSERT_GE(buckets * IndexBucket::k_slots, files) << "fewer slots than files";
  }
  EXPECT_LE(most, 32.0);
  RecordProperty("most_bytes_a_file", std::to_string(most));
  std::printf("index, segments and pins take at most %.1f bytes a file of 4 KiB\n", most);
}

}  // namespace
}  // namespace cube::cache
