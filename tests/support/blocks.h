// Blocks of large files for tests: a file that is put into the region block by block, like
// LargeFile does, and tiers that record the blocks offered to them.
#pragma once

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cache/base/clock.h"
#include "cache/record/record_hash.h"
#include "cache/region/large/chunks.h"
#include "cache/region/large/large_pages.h"
#include "cache/region/large/large_paths.h"
#include "cache/tier/block_record.h"
#include "cache/tier/tier.h"
#include "tests/support/test_region.h"

namespace cube::tests {

// The stat of a file that was changed long ago, on a file system with a fine clock.
inline cache::FileStat old_stat_for(std::string_view path, std::uint64_t size) {
  cache::FileStat stat = stat_for(path, size);
  stat.modified = {1'600'000'000, 1, 0};
  stat.changed = {1'600'000'001, 123'456'789, 0};
  return stat;
}

struct BlockFile {
  std::string path;
  std::string data;
  cache::FileStat stat;
  cache::FileKey key;

  BlockFile(std::string name, std::uint64_t size)
      : path(std::move(name)),
        data(content_of(path, 1, size)),
        stat(old_stat_for(path, size)),
        key(key_of_file(path, stat)) {}

  // Fetches the pages of these bytes, which must be in one chunk. The chunk keeps its place.
  cache::Chunks::Claim bring(cache::Region& region, std::uint64_t at, std::uint64_t end) const {
    cache::Chunks chunks(region);
    auto claim = chunks.make(key, cache::chunk_of(at), cache::Chunks::k_none);
    const cache::PageRun pages = cache::pages_of(at, end);
    const auto window = claim ? chunks.window(claim, pages) : base::fail(ENOSPC);
    EXPECT_TRUE(window);
    if (!window) return claim;
    std::memcpy(window->data(), data.data() + at, end - at);
    chunks.note_present(claim, pages);
    return claim;
  }
  // Fetches a whole block of a file whose path is in the region.
  void bring_block(cache::Region& region, const cache::BlockPlace& block) const {
    const auto claim = bring(region, block.begin(), block.begin() + block.bytes(data.size()));
    EXPECT_TRUE(cache::LargePaths(region).note(key, path, stat));
    cache::Chunks(region).note_whole(claim);
  }
  std::uint64_t blocks(std::uint64_t block) const { return (data.size() + block - 1) / block; }
  std::string_view bytes_of(const cache::BlockPlace& block) const {
    return std::string_view(data).substr(block.begin(), block.bytes(data.size()));
  }
};

// The record of a block, in the form in which it is offered to a tier.
class BlockRecord {
 public:
  BlockRecord(std::string_view path, const cache::BlockPlace& block, const cache::FileStat& stat,
              std::string_view bytes, std::uint64_t fetched_ns = base::wall_ns(),
              std::uint64_t fill = 0)
      : name_(path, block),
        plan_(cache::plan_block(fill, name_, block, stat)),
        bytes_(plan_.end),
        data_(new(std::align_val_t{cache::k_page}) std::byte[plan_.end]) {
    std::memset(data_.get(), 0xee, bytes_);
    cache::write_block(
        data_.get(), plan_,
        {name_, block, stat, reinterpret_cast<const std::byte*>(bytes.data()), fetched_ns});
  }
  BlockRecord(const BlockFile& file, const cache::BlockPlace& block)
      : BlockRecord(file.path, block, file.stat, file.bytes_of(block)) {}

  cache::Record& operator*() const {
    return *reinterpret_cast<cache::Record*>(data_.get() + plan_.start);
  }
  cache::Record* operator->() const { return &**this; }
  const cache::RecordPlan& plan() const { return plan_; }
  std::string_view name() const { return name_.text(); }
  std::span<const std::byte> bytes() const { return {data_.get(), bytes_}; }
  std::vector<std::uint64_t> offsets() const { return {plan_.start}; }

 private:
  struct Free {
    void operator()(std::byte* p) const { operator delete[](p, std::align_val_t{cache::k_page}); }
  };
  cache::BlockName name_;
  cache::RecordPlan plan_;
  std::size_t bytes_;
  std::unique_ptr<std::byte[], Free> data_;
};

// A tier that keeps offered records in a map.
struct MapTier final : cache::Tier {
  std::map<std::string, std::string, std::less<>> records;
  std::size_t offered = 0;                     // records in total
  int error = 0;                               // returned by the next offer
  std::function<void()> during_offer = [] {};  // called before a record is kept

  MapTier() : Tier(0) {}
  base::Result<void> offer(std::span<const std::byte> bytes,
                           std::span<const std::uint64_t> offsets) override {
    during_offer();
    if (error != 0) return base::fail(std::exchange(error, 0));
    for (const std::uint64_t offset : offsets) {
      const auto& record = *reinterpret_cast<const cache::Record*>(bytes.data() + offset);
      EXPECT_TRUE(cache::header_is_sound(record, bytes.size() - offset) &&
                  cache::data_is_sound(record));
      EXPECT_EQ(record.kind, cache::RecordKind::block);
      EXPECT_FALSE(record.is_stale());
      records[std::string(record.path())] = bytes_of(record);
      ++offered;
    }
    return {};
  }
  bool visit(std::string_view, Judge&) override { return false; }
  void end_offers() override {}
  void content_changed(std::string_view, const cache::FileStat*) override {}
  void tree_changed() override {}
  base::TierStatus status() const override { return {}; }
  void abandon() override {}
};

}  // namespace cube::tests
