// The tier on a local disk (cache/tier/disk). Thread safety: as Tier.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "cache/base/process/process_id.h"
#include "cache/base/settings/config.h"
#include "cache/tier/disk/disk_store.h"
#include "cache/tier/disk/read_buffers.h"
#include "cache/tier/tier.h"

namespace cube::cache {

class DiskTier final : public Tier {
 public:
  // The tier is never freed. On failure, `why` explains the failure to the user in one line.
  static base::Result<DiskTier*> open(const base::Config& config, const base::ProcessId& job,
                                      std::string& why);

  bool may_have(std::string_view key) const override;
  bool visit(std::string_view key, Judge& judge) override;
  base::Result<void> offer(std::span<const std::byte> segment,
                           std::span<const std::uint64_t> offsets) override;
  // Writes the footer of the segment file. Without a footer, the next job would have to recover the
  // file.
  void end_offers() override { store_->seal(/*durable=*/false); }
  void content_changed(std::string_view key, const FileStat* stat) override;
  void tree_changed() override { store_->distrust_all(); }
  base::TierStatus status() const override;
  // Returns 0 if blocks of this size fit into the segment files. Otherwise returns the smallest
  // CUBESHIM_DISK with which they would fit.
  std::uint64_t least_bound_for_blocks(std::uint64_t block) const {
    return store_->least_bound_for(block);
  }
  void abandon() override {
    store_->abandon();
    buffers_.forget();
  }

 private:
  static constexpr std::size_t k_kind = 0;

  explicit DiskTier(std::unique_ptr<DiskStore> store) : Tier(k_kind), store_(std::move(store)) {}

  std::unique_ptr<DiskStore> store_;
  ReadBuffers buffers_;
};

}  // namespace cube::cache
