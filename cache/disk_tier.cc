#include "cache/disk_tier.h"

#include <cerrno>
#include <cstring>
#include <new>

namespace cube::cache {

base::Result<DiskTier*> DiskTier::open(const base::Config& config, const base::ProcessId& job, std::string& why) {
  DiskOptions options;
  options.directory = config.disk_dir;
  options.name = config.name;
  if (config.disk.is_percent) {
    options.size_percent = static_cast<std::uint32_t>(config.disk.value);
  } else {
    options.size_bound = config.disk.value;
  }
  const std::uint64_t parts[] = {job.pid, job.start_time, job.pid_namespace};
  options.job = base::hash_bytes(parts, sizeof parts) | 1;
  auto store = DiskStore::open(options, why);
  if (!store) return base::fail(store.error().value);
  auto* const tier = new (std::nothrow) DiskTier(std::move(*store));
  if (tier == nullptr) return base::fail(ENOMEM);
  return tier;
}

DiskTier::Verdict DiskTier::compare(const Record& record, const FileStat& stat) {
  if (!is_same_version(record.stat, stat) || record.data_size != stat.size) return Verdict::outdated;
  return may_be_racy(record) ? Verdict::refused : Verdict::taken;
}

std::optional<std::uint64_t> DiskTier::fill(std::string_view key, const FileStat& stat, std::byte* room) {
  std::optional<std::uint64_t> hash;
  visit(key, [&](const Record& record) {
    const Verdict verdict = compare(record, stat);
    if (verdict == Verdict::taken) {
      std::memcpy(room, record.data(), stat.size);
      hash = record.data_hash;
    }
    return verdict;
  });
  return hash;
}

void DiskTier::content_changed(std::string_view key, const FileStat* stat) {
  if (!key.empty()) store_->forget(key);
  if (stat != nullptr) store_->forget_inode(stat->device(), stat->inode);
}

void DiskTier::tell(RegionHeader& header) const {
  const DiskStatus status = store_->status();
  header.disk_capacity.store(status.capacity, std::memory_order_relaxed);
  header.disk_used.store(status.used, std::memory_order_relaxed);
  header.disk_entries.store(status.entries, std::memory_order_relaxed);
}

}  // namespace cube::cache
