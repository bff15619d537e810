#include "cache/tier/tier.h"

#include "cache/base/memory/copy_bytes.h"
#include "cache/record/recent_change.h"

namespace cube::cache {

Tier::Verdict Tier::compare(const Record& record, const FileStat& stat) {
  if (!is_same_version(record.stat, stat) || record.data_size != stat.size)
    return Verdict::outdated;
  return may_be_racy(record) ? Verdict::refused : Verdict::taken;
}

Tier::Verdict Tier::judge_version(const Record& record, const FileStat& stat) {
  return is_same_version(record.stat, stat) ? Verdict::taken : Verdict::outdated;
}

std::optional<std::uint64_t> Tier::fill(std::string_view key, const FileStat& stat,
                                        std::byte* room) {
  class Copy final : public Judge {
   public:
    Copy(Tier& tier, const FileStat& expected, std::byte* to)
        : Judge(RecordKind::file), tier_(tier), expected_(expected), to_(to) {}
    Verdict judge(const Record& record) override {
      if (record.kind != RecordKind::file) return Verdict::refused;
      const Verdict verdict = tier_.judge_by_stat(record, expected_);
      if (verdict == Verdict::taken) {
        base::copy_bytes(to_, record.data(), expected_.size);
        hash = record.data_hash;
      }
      return verdict;
    }
    std::optional<std::uint64_t> hash;

   private:
    Tier& tier_;
    const FileStat& expected_;
    std::byte* to_;
  } copy(*this, stat, room);
  visit(key, copy);
  return copy.hash;
}

}  // namespace cube::cache
