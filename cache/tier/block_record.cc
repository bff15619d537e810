#include "cache/tier/block_record.h"

#include <charconv>
#include <cstring>

#include "cache/base/hash.h"
#include "cache/base/memory/copy_bytes.h"
#include "cache/record/recent_change.h"

namespace cube::cache {
namespace {

Tier::Verdict compare(const Record& record, const FileStat& stat, const BlockPlace& place,
                      Tier::Verdict version) {
  if (record.kind != RecordKind::block) return Tier::Verdict::outdated;
  if (version == Tier::Verdict::outdated) {
    // The caller's stat may be outdated, because the file may have changed since the caller opened
    // it.
    const bool is_newer = record.stat.changed.seconds > stat.changed.seconds ||
                          (record.stat.changed.seconds == stat.changed.seconds &&
                           record.stat.changed.nanoseconds > stat.changed.nanoseconds);
    return is_newer ? Tier::Verdict::refused : Tier::Verdict::outdated;
  }
  if (record.data_size != place.bytes(stat.size)) return Tier::Verdict::outdated;
  if (version == Tier::Verdict::refused) return version;
  return may_be_racy(record) ? Tier::Verdict::refused : Tier::Verdict::taken;
}

}  // namespace

BlockName::BlockName(std::string_view path, const BlockPlace& place) {
  constexpr std::size_t k_digits = 20;
  if (path.size() + 2 * k_digits + 3 > sizeof text_) return;
  std::memcpy(text_, path.data(), path.size());
  char* at = text_ + path.size();
  *at++ = '/';
  *at++ = '/';
  at = std::to_chars(at, at + k_digits, place.block_bytes).ptr;
  *at++ = '/';
  at = std::to_chars(at, at + k_digits, place.number).ptr;
  length_ = static_cast<std::size_t>(at - text_);
}

Tier::Verdict compare_block(const Record& record, const FileStat& stat, const BlockPlace& place) {
  const bool is_same = is_same_version(record.stat, stat);
  return compare(record, stat, place, is_same ? Tier::Verdict::taken : Tier::Verdict::outdated);
}

Tier::Verdict compare_block(Tier& tier, const Record& record, const FileStat& stat,
                            const BlockPlace& place) {
  return record.kind == RecordKind::block
             ? compare(record, stat, place, tier.judge_version(record, stat))
             : Tier::Verdict::outdated;
}

RecordPlan plan_block(std::uint64_t fill, const BlockName& name, const BlockPlace& place,
                      const FileStat& stat) {
  return plan_record(fill, name.text().size(), place.bytes(stat.size));
}

void write_block(std::byte* buffer, const RecordPlan& plan, const BlockContent& content) {
  const std::uint64_t size = content.place.bytes(content.stat.size);
  base::copy_bytes(buffer + plan.data, content.data, size);
  std::memset(buffer + plan.data + size, 0, plan.end - plan.data - size);
  write_record_head(buffer + plan.start, plan,
                    {.kind = RecordKind::block,
                     .path = content.name.text(),
                     .stat = content.stat,
                     .fetched_ns = content.fetched_ns},
                    {.size = size, .hash = base::hash_bytes(buffer + plan.data, size)});
  // Clears the mark "unconfirmed", because records of a tier are never confirmed.
  reinterpret_cast<Record*>(buffer + plan.start)->stale.store(0, std::memory_order_relaxed);
}

}  // namespace cube::cache
