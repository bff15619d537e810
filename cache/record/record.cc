#include "cache/record/record.h"

#include <cstring>

#include "cache/base/hash.h"
#include "cache/base/round.h"
#include "cache/record/record_hash.h"

namespace cube::cache {
RecordPlan plan_record(std::uint64_t fill, std::uint64_t path_length, std::uint64_t data_size,
                       RecordShape shape) {
  const std::uint64_t head = sizeof(Record) + path_length + 1;
  RecordPlan plan;
  plan.mappable = shape == RecordShape::mappable ||
                  (shape == RecordShape::by_size && data_size >= k_mappable_from);
  if (!plan.mappable) {
    plan.start = base::round_up(fill, k_record_alignment);
    plan.data = base::round_up(plan.start + head, k_record_alignment);
    plan.end = base::round_up(plan.data + data_size, k_record_alignment);
    return plan;
  }
  // Places the header right before the page on which the data begins.
  plan.data = base::round_up(
      base::round_up(fill, k_record_alignment) + base::round_up(head, k_record_alignment), k_page);
  plan.start = base::round_down(plan.data - head, k_record_alignment);
  plan.end = base::round_up(plan.data + data_size, k_page);
  return plan;
}

void write_record_head(std::byte* start, const RecordPlan& plan, const RecordContent& content,
                       const RecordData& data) {
  auto& record = *reinterpret_cast<Record*>(start);
  record.magic = Record::k_magic;
  record.version = Record::k_version;
  record.kind = content.kind;
  record.flags =
      static_cast<std::uint8_t>((content.physical ? Record::k_flag_physical : 0) |
                                (plan.mappable ? Record::k_flag_mappable : 0) |
                                (content.prefetched ? Record::k_flag_prefetched : 0) |
                                (content.from_disk ? Record::k_flag_from_disk : 0) |
                                (content.from_cluster ? Record::k_flag_from_cluster : 0));
  record.path_length = static_cast<std::uint32_t>(content.path.size());
  record.data_offset = static_cast<std::uint32_t>(plan.data - plan.start);
  record.data_size = data.size;
  record.record_size = plan.end - plan.start;
  record.stat = content.stat;
  record.fetched_ns = content.fetched_ns;
  record.origin = content.origin;
  record.reserved_word = 0;
  record.job_tag = content.job_tag;
  record.node_tag = content.node_tag;
  record.rights = content.rights;
  auto* path = reinterpret_cast<std::byte*>(&record + 1);
  std::memcpy(path, content.path.data(), content.path.size());
  std::byte* const path_end = path + content.path.size();
  std::memset(path_end, 0, static_cast<std::size_t>(start + record.data_offset - path_end));
  record.data_hash = data.hash;
  record.header_hash = header_hash_of(record);
  record.stale.store(Record::k_unconfirmed, std::memory_order_relaxed);
  record.views.store(content.views, std::memory_order_relaxed);
  record.verified_ns.store(content.verified_ns, std::memory_order_relaxed);
}

void write_record(std::byte* segment, const RecordPlan& plan, const RecordContent& content) {
  const std::uint64_t size = content.data_size.value_or(content.stat.size);
  std::memset(segment + plan.data + size, 0, plan.end - plan.data - size);
  const std::uint64_t hash =
      content.data_hash ? *content.data_hash : base::hash_bytes(segment + plan.data, size);
  write_record_head(segment + plan.start, plan, content, {.size = size, .hash = hash});
}

}  // namespace cube::cache
