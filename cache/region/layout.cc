#include "cache/region/layout.h"

#include <algorithm>

#include "cache/record/record.h"

namespace cube::cache {
namespace {

constexpr std::uint64_t k_mib = 1 << 20;
// For each 32 KiB of segments, a table of the index has half of the number given here as slots. A
// file needs two slots, one for its path and one for its inode, and two-choice hashing needs some
// spare room. The first table suffices for files with an average size of 45 KiB or more. The first
// four tables suffice for files of 4 KiB, and all five for label files of 200 bytes.
constexpr std::uint64_t k_table_half_slots[k_index_tables] = {3, 3, 6, 28, 288};

// Each thread that waits for an object store has a mail row, so the number of rows limits the
// requests in flight. A row has 2 KiB.
constexpr std::uint32_t k_most_mail_rows = 256;
constexpr std::uint32_t k_fewest_large_paths = 32, k_most_large_paths = 4096;

std::uint32_t segment_bytes_for(std::uint64_t bytes) {
  // A small region needs small segments, because each process leases a whole segment. All sizes are
  // multiples of the size of a huge page.
  if (bytes >= 2048 * k_mib) return 16 * k_mib;
  if (bytes >= 256 * k_mib) return 4 * k_mib;
  return 2 * k_mib;
}

// The number of rows of a table that has `most` rows in a large region. Hundreds of jobs (one for
// each rank) can share a node, but a small region has no room for so many rows.
std::uint32_t rows_for(std::uint32_t segment_bytes, std::uint32_t most) {
  return segment_bytes >= 16 * k_mib ? most : segment_bytes >= 4 * k_mib ? most / 2 : most / 4;
}

// The divisor for tables that need far fewer rows in a small region.
std::uint32_t share_of_rows(std::uint32_t segment_bytes) {
  return segment_bytes >= 16 * k_mib ? 1 : segment_bytes >= 4 * k_mib ? 4 : 16;
}

RegionLayout place(std::uint32_t segment_bytes, std::uint32_t segment_count) {
  RegionLayout layout;
  layout.segment_bytes = segment_bytes;
  layout.segment_count = segment_count;
  layout.process_slots = rows_for(segment_bytes, k_most_process_slots);
  layout.job_rows = rows_for(segment_bytes, k_most_job_rows);
  layout.process_lanes = rows_for(segment_bytes, base::k_lanes);
  const std::uint64_t units = std::uint64_t{segment_bytes} * segment_count / (32 << 10);
  std::uint64_t at = k_page;
  const auto table = [&](std::uint64_t& where, std::uint64_t row_bytes, std::uint64_t rows) {
    where = at;
    at = (at + row_bytes * rows + 63) / 64 * 64;
  };
  table(layout.jobs, sizeof(JobRow), layout.job_rows + 1);
  table(layout.processes, sizeof(ProcessSlot), layout.process_slots);
  table(layout.pins, sizeof(std::uint32_t) * segment_count, layout.process_slots);
  table(layout.lanes, sizeof(LaneRow) * layout.process_lanes, layout.process_slots);
  table(layout.segments, sizeof(SegmentRow), segment_count);
  table(layout.writers, sizeof(WriterStripe), k_writer_stripes);
  table(layout.own_writers, sizeof(std::uint64_t) * k_own_writers, layout.process_slots);
  table(layout.left_writers, sizeof(LeftWriter), k_left_writers);
  table(layout.last_changes, sizeof(LastChange), layout.last_change_rows());
  table(layout.flights, sizeof(FlightSlot), k_flight_slots);
  table(layout.unread, sizeof(std::uint64_t),
        std::uint64_t{segment_bytes} * segment_count / k_unread_grain / 64);
  table(layout.misses, sizeof(std::uint64_t), k_recent_misses);
  table(layout.listings, sizeof(ListingSlot), k_listing_slots);
  table(layout.listed, sizeof(ListedRow), layout.listed_rows());
  table(layout.chunks, sizeof(ChunkRow), layout.chunk_count());
  table(layout.chunk_buckets, sizeof(ChunkBucket), layout.chunk_bucket_count());
  table(layout.large_paths, sizeof(LargePathRow), layout.large_path_rows());
  table(layout.servers, sizeof(base::ServerRow), base::k_server_rows);
  table(layout.mail, sizeof(MailRow), layout.mail_rows());
  table(layout.unserved, sizeof(UnservedRow), k_unserved_rows);
  for (std::uint32_t i = 0; i < k_index_tables; ++i) {
    // Each table begins on a page, because a table gets its memory later than the parts before it.
    at = (at + k_page - 1) / k_page * k_page;
    layout.bucket_count[i] = static_cast<std::uint32_t>(
        std::max<std::uint64_t>(units * k_table_half_slots[i] / 2 / IndexBucket::k_slots, 64));
    table(layout.index[i], sizeof(IndexBucket), layout.bucket_count[i]);
  }
  // Segments begin on a multiple of 2 MiB, so that they can consist of huge pages.
  layout.data = (at + 2 * k_mib - 1) / (2 * k_mib) * (2 * k_mib);
  layout.file_bytes = layout.data + std::uint64_t{segment_bytes} * segment_count;
  return layout;
}

}  // namespace

// The buckets are at most half full, so that two buckets of eight have room for nearly every chunk.
std::uint32_t RegionLayout::chunk_bucket_count() const {
  return chunk_count() * 2 / ChunkBucket::k_slots + 1;
}

// There is one row for each chunk, because only files with chunks need a row.
std::uint32_t RegionLayout::large_path_rows() const {
  return std::clamp(chunk_count(), k_fewest_large_paths, k_most_large_paths);
}

// With 12 rows, the smallest region (8 MiB) still has room for three segments.
std::uint32_t RegionLayout::mail_rows() const {
  return segment_bytes < 4 * k_mib ? 12 : k_most_mail_rows / share_of_rows(segment_bytes);
}

std::uint32_t RegionLayout::listed_rows() const {
  return k_most_listed_rows / share_of_rows(segment_bytes);
}

// This table is small in a region of 8 MiB, so that one more segment fits into the region.
std::uint32_t RegionLayout::last_change_rows() const {
  return segment_count < 4 ? k_most_last_changes / 16 : k_most_last_changes;
}

RegionLayout layout_of(std::uint32_t segment_bytes, std::uint32_t segment_count) {
  const bool known =
      segment_bytes == 2 * k_mib || segment_bytes == 4 * k_mib || segment_bytes == 16 * k_mib;
  if (!known || segment_count == 0 || segment_count >= (1U << 18)) return {};
  return place(segment_bytes, segment_count);
}

RegionLayout layout_for(std::uint64_t bytes) {
  const std::uint32_t segment_bytes = segment_bytes_for(bytes);
  // An index slot has 18 bits for the segment.
  auto count =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(bytes / segment_bytes, (1U << 18) - 1));
  while (count > 1 && place(segment_bytes, count).file_bytes > bytes) --count;
  return place(segment_bytes, count);
}

}  // namespace cube::cache
