#include "cache/tier/cluster_record.h"

#include <algorithm>

#include "cache/record/recent_change.h"

namespace cube::cache {
namespace {

bool is_zero(const std::byte* from, const std::byte* to) {
  return std::all_of(from, to, [](std::byte b) { return b == std::byte{0}; });
}

}  // namespace

void write_cluster_head(const Record& record, std::string_view below_prefix, const ClusterTags& tags, ClusterHead& head) {
  const RecordPlan plan = plan_record(0, below_prefix.size(), record.data_size, RecordShape::compact);
  RecordContent content;
  content.kind = record.kind;
  content.path = below_prefix;
  content.stat = record.stat;
  content.physical = record.is_physical();
  content.fetched_ns = record.fetched_ns;
  content.job_tag = tags.job;
  content.node_tag = tags.node;
  write_record_head(head.bytes, plan, content, {.size = record.data_size, .hash = record.data_hash});
  reinterpret_cast<Record*>(head.bytes)->stale.store(0, std::memory_order_relaxed);
  head.size = plan.data;
  head.padding = plan.end - plan.data - record.data_size;
}

bool may_be_shared(const Record& record, bool with_private) {
  if (record.kind != RecordKind::file || record.origin != k_mounts || record.is_stale() || record.is_from_cluster()) return false;
  if (!record.stat.is_regular() || record.data_size != record.stat.size || may_be_racy(record)) return false;
  return with_private || (record.stat.mode & S_IROTH) != 0;
}

Record* check_cluster_value(std::span<std::byte> bytes, std::string_view below_prefix) {
  if (bytes.size() < sizeof(Record)) return nullptr;
  auto& record = *reinterpret_cast<Record*>(bytes.data());
  if (!header_is_sound(record, bytes.size()) || record.path() != below_prefix) return nullptr;
  const RecordPlan plan = plan_record(0, record.path_length, record.data_size, RecordShape::compact);
  if (record.data_offset != plan.data || record.record_size != plan.end || bytes.size() != plan.end) return nullptr;
  // The marks are in no hash.
  const bool has_marks = record.stale.load(std::memory_order_relaxed) != 0 || record.views.load(std::memory_order_relaxed) != 0 ||
                         record.verified_ns.load(std::memory_order_relaxed) != 0;
  const bool is_file = record.kind == RecordKind::file && record.origin == k_mounts && record.stat.is_regular() &&
                       record.data_size == record.stat.size && (record.flags & ~Record::k_flag_physical) == 0;
  if (has_marks || !is_file || record.reserved_word != 0 || record.reserved != 0) return nullptr;
  const std::byte* const path_end = bytes.data() + sizeof(Record) + record.path_length;
  const std::byte* const data_end = record.data() + record.data_size;
  if (!is_zero(path_end, record.data()) || !is_zero(data_end, bytes.data() + plan.end)) return nullptr;
  return data_is_sound(record) ? &record : nullptr;
}

bool is_same_but_inode(const FileStat& a, const FileStat& b) {
  return a.size == b.size && a.modified == b.modified && a.changed == b.changed && a.same_rights(b);
}

}  // namespace cube::cache
