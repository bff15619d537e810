// Twin chunks: the same chunk made by two processes at the same time. Also reads of a file that
// finds either of them.
#include "cache/fill/large/large_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <string>

#include "cache/region/segments.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_region.h"

namespace cube::cache {
namespace {

constexpr std::uint64_t k_block = 4096;
constexpr std::size_t k_size = 3 * k_chunk_bytes + 12'345;

struct TwinChunkTest : testing::Test {
  tests::TempDir dir;
  tests::TestCache cache{64 * tests::k_mib, [](base::Config& config) {
                           config.max_file = 1;
                           config.block = k_block;
                         }};
  const std::string data = tests::content_of("f", 1, k_size);
  const std::string path = dir.write("f", data);
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  LargeFile* const file = cache->large().begin(path, fd);
  Chunks chunks{cache->region()};

  // Another test may have found its region full.
  TwinChunkTest() { LargeFile::forget_users(); }
  ~TwinChunkTest() override {
    if (file != nullptr) file->end();
    close(fd);
  }
  FileKey key() const { return key_of_file(path, *stat_fd(fd)); }
  std::string read(std::uint64_t at, std::size_t n) const {
    std::string bytes(n, '\0');
    const long got =
        cache->large().read(*file, FdEpoch(fd), reinterpret_cast<std::byte*>(bytes.data()), n, at);
    return got < 0 ? "" : bytes.substr(0, static_cast<std::size_t>(got));
  }
  // Removes this place from its buckets.
  void hide(std::uint32_t place) {
    for (std::uint32_t i = 0; i < cache->region().layout().chunk_bucket_count(); ++i) {
      for (auto& slot : cache->region().chunk_bucket(i).slots) {
        std::uint32_t word = place + 1;
        if (slot.compare_exchange_strong(word, 0)) bucket_ = i;
      }
    }
  }
  void show(std::uint32_t place) {
    for (auto& slot : cache->region().chunk_bucket(bucket_).slots) {
      std::uint32_t none = 0;
      if (slot.compare_exchange_strong(none, place + 1)) return;
    }
  }

 private:
  std::uint32_t bucket_ = 0;
};

TEST_F(TwinChunkTest, ChunkMadeTwiceStaysReadable) {
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(read(0, 10), data.substr(0, 10));
  // Two processes that fetch different blocks of a chunk at the same time can both make it.
  const std::uint32_t here = chunks.find(key(), 0).place() + 1;
  ASSERT_TRUE(chunks.make(key(), 1, here));
  hide(here);
  const auto other = chunks.make(key(), 1, here + 2);
  ASSERT_TRUE(other);
  show(here);
  ASSERT_EQ(chunks.find(key(), 1).place(), other.place());
  chunks.note_present(other, {0, 1});
  // The first page is present in the other chunk, but missing in the chunk that this file finds.
  alarm(120);
  EXPECT_EQ(read(k_chunk_bytes, 3 * k_block), data.substr(k_chunk_bytes, 3 * k_block));
  alarm(0);
}

TEST_F(TwinChunkTest, PresentPageOfAChunkMadeTwiceIsNotWritten) {
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(read(0, 10), data.substr(0, 10));
  const std::uint32_t here = chunks.find(key(), 0).place() + 1;
  ASSERT_TRUE(chunks.make(key(), 1, here));
  EXPECT_EQ(read(k_chunk_bytes + k_block, k_block), data.substr(k_chunk_bytes + k_block, k_block));
  hide(here);
  const auto other = chunks.make(key(), 1, here + 2);
  ASSERT_TRUE(other);
  show(here);
  const std::uint64_t before = cache->region().header().used_bytes.load();
  // Fetches ahead block by block: all pages arrive, and the page that was present stays.
  for (std::uint64_t at = k_chunk_bytes; at < 2 * std::uint64_t{k_chunk_bytes}; at += k_block) {
    EXPECT_TRUE(cache->large().fetch_ahead(*file, fd, file->fds_left(), {at, at + k_block}));
  }
  const auto claim = chunks.find(key(), 1, here);
  EXPECT_EQ(claim.place(), here);
  // Each page is counted once.
  EXPECT_EQ(cache->region().header().used_bytes.load() - before, k_chunk_bytes - k_block);
  EXPECT_EQ(read(k_chunk_bytes, k_chunk_bytes), data.substr(k_chunk_bytes, k_chunk_bytes));
}

TEST_F(TwinChunkTest, StoppedMakerLeavesRoomToOthers) {
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(read(0, 10), data.substr(0, 10));
  const std::uint32_t here = chunks.find(key(), 0).place() + 1;
  ASSERT_TRUE(chunks.make(key(), 1, here));
  // Another process is about to seal the chunk, but has no CPU to run on.
  std::atomic<std::uint64_t>& word = cache->region().chunk_row(here).word;
  const std::uint64_t sealed = word.load();
  SegmentWord still = SegmentWord::of_word(sealed);
  still.state = SegmentState::open;
  word.store(still.as_word());
  // A list fetches another block of the chunk, and then the rest of the file.
  const std::atomic<bool> goes_on{false};
  for (LargeFile::Range range{k_chunk_bytes, 3 * std::uint64_t{k_chunk_bytes}}; !range.is_empty();)
    EXPECT_EQ(cache->large().bring_ahead(*file, fd, range, goes_on).what, LargeFile::Brought::here)
        << "at " << range.begin;
  EXPECT_TRUE(LargeFile::may_have_room());
  word.store(sealed);
  EXPECT_EQ(read(k_chunk_bytes, k_chunk_bytes), data.substr(k_chunk_bytes, k_chunk_bytes));
}

}  // namespace
}  // namespace cube::cache
