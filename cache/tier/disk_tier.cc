#include "cache/tier/disk_tier.h"

#include <cerrno>
#include <new>

#include "cache/base/hash.h"

namespace cube::cache {

base::Result<DiskTier*> DiskTier::open(const base::Config& config, const base::ProcessId& job,
                                       std::string& why) {
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

bool DiskTier::may_have(std::string_view key) const {
  return store_->find(base::hash_path(key)).count != 0;
}

bool DiskTier::visit(std::string_view key, Judge& judge) {
  for (const DiskPlace& place : store_->find(base::hash_path(key))) {
    const auto buffer = buffers_.take(place.buffer_bytes());
    if (!buffer) continue;
    const auto record = store_->read(place, key, {buffer->data(), buffer->size()});
    if (!record) continue;
    const Verdict verdict = judge.judge(**record);
    if (verdict == Verdict::taken) return true;
    if (verdict == Verdict::outdated) store_->drop(place, key);
  }
  return false;
}

base::Result<void> DiskTier::offer(std::span<const std::byte> segment,
                                   std::span<const std::uint64_t> offsets) {
  const auto appended = store_->append(segment, offsets);
  if (!appended) return base::fail(appended.error().value);
  return {};
}

void DiskTier::content_changed(std::string_view key, const FileStat* stat) {
  if (!key.empty()) store_->forget(key);
  if (stat != nullptr) store_->forget_inode(stat->device(), stat->inode);
}

base::TierStatus DiskTier::status() const {
  const DiskStatus status = store_->status();
  return {.capacity = status.capacity, .used = status.used, .entries = status.entries};
}

}  // namespace cube::cache
