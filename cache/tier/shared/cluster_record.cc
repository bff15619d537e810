#include "cache/tier/shared/cluster_record.h"

#include <algorithm>

#include "cache/record/directory_data.h"
#include "cache/record/recent_change.h"
#include "cache/record/record_hash.h"

namespace cube::cache {
namespace {

bool is_zero(const std::byte* from, const std::byte* to) {
  return std::all_of(from, to, [](std::byte b) { return b == std::byte{0}; });
}

bool is_directory(const FileStat& stat) { return (stat.mode & S_IFMT) == S_IFDIR; }

// Whether the fields of the record fit its kind.
bool has_sense(const Record& record) {
  switch (record.kind) {
    case RecordKind::file: return record.stat.is_regular() && record.data_size == record.stat.size;
    case RecordKind::block:
      return record.stat.is_regular() && record.data_size <= record.stat.size &&
             !record.is_physical();
    case RecordKind::directory: return is_directory(record.stat);
    default: return false;
  }
}

}  // namespace

ClusterContent content_for_cluster(const Record& record, std::string_view below_prefix) {
  return {.kind = record.kind,
          .below_prefix = below_prefix,
          .stat = record.stat,
          .is_physical = record.is_physical(),
          .fetched_ns = record.fetched_ns,
          .rights = record.rights,
          .data = {.size = record.data_size, .hash = record.data_hash}};
}

void write_cluster_head(const ClusterContent& of, const ClusterTags& tags, ClusterHead& head) {
  const RecordPlan plan =
      plan_record(0, of.below_prefix.size(), of.data.size, RecordShape::compact);
  RecordContent content;
  content.kind = of.kind;
  content.path = of.below_prefix;
  content.stat = of.stat;
  content.physical = of.is_physical;
  content.fetched_ns = of.fetched_ns;
  content.job_tag = tags.job;
  content.node_tag = tags.node;
  content.rights = of.rights;
  write_record_head(head.bytes, plan, content, of.data);
  reinterpret_cast<Record*>(head.bytes)->stale.store(0, std::memory_order_relaxed);
  head.size = plan.data;
  head.padding = plan.end - plan.data - of.data.size;
}

bool is_for_everybody(const FileStat& stat) {
  const std::uint32_t needed = is_directory(stat) ? S_IROTH | S_IXOTH : S_IROTH;
  return (stat.mode & needed) == needed;
}

bool may_be_shared(const Record& record, bool with_private) {
  if (record.origin != k_mounts || record.is_stale() || record.is_from_cluster()) return false;
  if (record.kind == RecordKind::directory) {
    const auto data = DirectoryData::of(record);
    if (!data || !data->has_true_times()) return false;
  } else if (record.kind != RecordKind::file) {
    return false;
  }
  return has_sense(record) && !may_be_racy(record) &&
         (with_private || is_for_everybody(record.stat));
}

Record* check_cluster_value(std::span<std::byte> bytes, RecordKind kind,
                            std::string_view below_prefix) {
  if (bytes.size() < sizeof(Record)) return nullptr;
  auto& record = *reinterpret_cast<Record*>(bytes.data());
  if (!header_is_sound(record, bytes.size()) || record.path() != below_prefix) return nullptr;
  const RecordPlan plan =
      plan_record(0, record.path_length, record.data_size, RecordShape::compact);
  if (record.data_offset != plan.data || record.record_size != plan.end || bytes.size() != plan.end)
    return nullptr;
  // Checks the marks separately, because no hash covers them.
  const bool has_marks = record.stale.load(std::memory_order_relaxed) != 0 ||
                         record.views.load(std::memory_order_relaxed) != 0 ||
                         record.verified_ns.load(std::memory_order_relaxed) != 0;
  const bool is_such = record.kind == kind && record.origin == k_mounts && has_sense(record) &&
                       (record.flags & ~Record::k_flag_physical) == 0;
  if (has_marks || !is_such || record.reserved_word != 0) return nullptr;
  const std::byte* const path_end = bytes.data() + sizeof(Record) + record.path_length;
  const std::byte* const data_end = record.data() + record.data_size;
  if (!is_zero(path_end, record.data()) || !is_zero(data_end, bytes.data() + plan.end))
    return nullptr;
  return data_is_sound(record) ? &record : nullptr;
}

bool is_same_but_inode(const FileStat& a, const FileStat& b) {
  return a.size == b.size && a.modified == b.modified && a.changed == b.changed && a.same_rights(b);
}

}  // namespace cube::cache
