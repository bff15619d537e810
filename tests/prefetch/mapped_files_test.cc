// How far mappings of large files are read ahead of the program.
#include "prefetch/work/mapped_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "cache/base/clock.h"
#include "cache/base/unique_fd.h"
#include "cache/region/large/chunks.h"
#include "cache/region/single_flight.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_region.h"

namespace cube::prefetch {
namespace {

constexpr std::uint64_t k_head = 128 << 10, k_size = 12 << 20, k_far = 3 << 20;

// A program that maps a file, and the library's side of the mapping, without threads.
struct MappedFilesTest : testing::Test {
  tests::TestCache cache{64 * tests::k_mib,
                         [](base::Config& config) { config.max_file = 100'000; }};
  const tests::TempDir dir;
  std::string path;
  int fd = -1;
  cache::LargeFile* file = nullptr;
  base::Mapping programs;
  EventCount news;
  std::atomic<bool> is_stopping{false};
  MappedFiles mapped{*cache.cache, news, is_stopping};

  void map(const std::string& head) {
    path = dir.write("f", head);
    // The file is written in single pages, so that the kernel caches single pages and a touch maps
    // only a few of them.
    base::UniqueFd written(open(path.c_str(), O_WRONLY | O_CLOEXEC));
    std::string page(4096, 'x');
    for (auto at = static_cast<off_t>(head.size()); at < static_cast<off_t>(k_size); at += 4096) {
      std::memcpy(page.data(), &at, sizeof at);
      ASSERT_GT(pwrite(written.get(), page.data(), page.size(), at), 0);
    }
    ASSERT_EQ(ftruncate(written.get(), k_size), 0);
    // A file that is open for writing is not served.
    written.reset();
    fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    file = cache->large().begin(path, fd);
    ASSERT_NE(file, nullptr);
    map_again();
  }
  void map_again(std::uint64_t begin = 0) {
    auto program_has = base::Mapping::private_view(fd, begin, k_size - begin);
    auto own = base::Mapping::private_view(fd, begin, k_size - begin);
    ASSERT_TRUE(program_has && own);
    programs = std::move(*program_has);
    file->own_mappings().begin();
    ASSERT_TRUE(mapped.add(*file, {.own = std::move(*own),
                                   .begin = begin,
                                   .program_has = programs.data(),
                                   .before = k_size,
                                   .tells_pages = true}));
  }
  void close_file() {
    mapped.drop_all();
    EXPECT_FALSE(file->own_mappings().is_any());
    file->end();
    close(fd);
  }
  void TearDown() override { close_file(); }
  void touch(std::uint64_t at) const {
    *static_cast<volatile const char*>(reinterpret_cast<const char*>(programs.data()) + at);
  }
  // Brings all parts that are allowed until the program does something else.
  std::uint64_t bring() {
    while (mapped.bring_part()) {
    }
    return cache->large().present_bytes(*file, {0, k_size});
  }
  static std::string safetensors() {
    const std::string text = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
    std::string length(8, '\0');
    length[0] = static_cast<char>(text.size());
    return length + text;
  }
};

TEST_F(MappedFilesTest, OnlyTheHeadIsFetchedUntilTheProgramReadsFurther) {
  map(safetensors());
  EXPECT_EQ(bring(), k_head);
  touch(0);
  EXPECT_EQ(bring(), k_head);
}

TEST_F(MappedFilesTest, ModelIsReadALittleAheadOfTheProgram) {
  for (const std::string& head : {safetensors(), std::string("GGUF"), std::string("PK\3\4")}) {
    const bool is_first = file == nullptr;
    if (!is_first) close_file();
    map(head);
    EXPECT_EQ(bring(), k_head);
    touch(k_head - 1);
    const std::uint64_t came = bring();
    EXPECT_GT(came, k_head) << head;
    EXPECT_LE(came, k_head + k_far) << head;
    for (std::uint64_t at = 0; at < k_size; at += 1 << 20) {
      touch(at);
      bring();
    }
    EXPECT_EQ(bring(), k_size) << head;
  }
}

TEST_F(MappedFilesTest, OnlyTheMappedPartOfAFileIsFetched) {
  map(safetensors());
  mapped.drop_all();
  constexpr std::uint64_t k_begin = 4 << 20;
  map_again(k_begin);
  file->advise(cache::LargeFile::Advice::sequential);
  touch(k_head - 1);
  for (std::uint64_t at = 0; at < k_size - k_begin; at += 1 << 20) {
    touch(at);
    bring();
  }
  EXPECT_EQ(cache->large().present_bytes(*file, {0, k_begin}), 0U);
  EXPECT_EQ(bring(), k_size - k_begin);
  std::vector<std::byte> bytes(k_size - k_begin);
  ASSERT_EQ(cache->large().read(*file, cache::FdEpoch(fd), bytes.data(), bytes.size(), k_begin),
            static_cast<long>(bytes.size()));
  EXPECT_EQ(std::memcmp(bytes.data(), programs.data(), bytes.size()), 0);
}

TEST_F(MappedFilesTest, RowHasNothingOfItsPreviousMapping) {
  map(safetensors());
  mapped.advised(programs.data(), k_size, MADV_RANDOM);
  mapped.unmapped(programs.data(), k_size);
  bring();
  close_file();
  map(safetensors());
  EXPECT_EQ(bring(), k_head) << "another version";
  touch(k_head - 1);
  EXPECT_GT(bring(), k_head);
  close_file();
  map(safetensors());
  mapped.advised(programs.data(), k_size, MADV_WILLNEED);
  mapped.unmapped(programs.data(), k_size);
  close_file();
  map(safetensors());
  EXPECT_EQ(bring(), k_head);
}

TEST_F(MappedFilesTest, OtherFileIsLeftToTheKernelUntilATenthIsPresent) {
  map("\177ELF");
  touch(k_head - 1);
  EXPECT_EQ(bring(), k_head);
  cache::LargeFile::Range tenth{k_size / 2, k_size / 2 + k_size / 10 + (1 << 20)};
  while (!tenth.is_empty()) cache->large().bring_ahead(*file, fd, tenth, is_stopping);
  map_again();
  EXPECT_EQ(bring(), k_size);
}

TEST_F(MappedFilesTest, OtherFileWithoutRoomIsLeftToTheKernel) {
  map("\177ELF");
  touch(k_head - 1);
  EXPECT_EQ(bring(), k_head);
  cache::LargeFile::Range tenth{k_size / 2, k_size / 2 + k_size / 10 + (1 << 20)};
  while (!tenth.is_empty()) cache->large().bring_ahead(*file, fd, tenth, is_stopping);
  const std::uint64_t present = cache->large().present_bytes(*file, {0, k_size});
  cache::Chunks chunks(cache->region());
  for (std::uint32_t number = 0; chunks.free_bytes() >= k_size / 2; ++number)
    ASSERT_TRUE(chunks.make({1, {2, 3}}, number, cache::Chunks::k_none));
  map_again();
  EXPECT_EQ(bring(), present);
}

TEST_F(MappedFilesTest, AdviceOfTheProgramWins) {
  map(safetensors());
  file->advise(cache::LargeFile::Advice::random);
  touch(k_head - 1);
  EXPECT_EQ(bring(), k_head);
}

TEST_F(MappedFilesTest, MappingThatTheProgramHasLeftIsNotReadOn) {
  map(safetensors());
  EXPECT_EQ(bring(), k_head);
  touch(k_head - 1);
  mapped.unmapped(programs.data(), k_size);
  // The kernel caches all pages of a file that was just written.
  bring();
  EXPECT_FALSE(file->own_mappings().is_any());
}

TEST_F(MappedFilesTest, LockOfTheProgramDropsTheMapping) {
  map(safetensors());
  touch(k_head - 1);
  file->note_lock(cache::LargeFile::Lock::flock);
  mapped.let_go_of(*file);
  EXPECT_FALSE(file->own_mappings().is_any());
  EXPECT_EQ(bring(), 0U);
}

TEST_F(MappedFilesTest, FileThatHasBecomeShorterIsNotReadPastItsEnd) {
  map(safetensors());
  EXPECT_EQ(bring(), k_head);
  touch(k_head - 1);
  ASSERT_EQ(truncate(path.c_str(), k_head), 0);
  EXPECT_EQ(bring(), k_head);
}

TEST_F(MappedFilesTest, LookCopiesNothingWhileAPartIsBeingFetched) {
  map(safetensors());
  // The part waits some seconds for an open of the file.
  cache::SingleFlight flights(cache->region());
  cache::SingleFlight::Ticket opens;
  const auto stat = cache::stat_path(AT_FDCWD, path.c_str(), 0);
  ASSERT_TRUE(stat);
  ASSERT_EQ(flights.begin_prefetch(cache::key_of_file(path, *stat).path, opens),
            cache::SingleFlight::Prefetch::mine);
  const std::uint32_t seen = news.now();
  std::atomic<bool> has_ended{false};
  std::thread part([&] {
    mapped.bring_part();
    has_ended = true;
  });
  news.wait(seen);
  mapped.look();
  const std::uint64_t present = cache->large().present_bytes(*file, {0, k_size});
  const bool was_on_its_way = !has_ended;
  opens = {};
  part.join();
  if (!was_on_its_way) GTEST_SKIP() << "the machine stood still for seconds";
  EXPECT_EQ(present, 0U);
  EXPECT_EQ(bring(), k_head);
}

TEST_F(MappedFilesTest, ThreadsBringEachPartOfAMappingThatTheProgramLeavesMeanwhile) {
  map(safetensors());
  std::vector<std::thread> threads;
  std::atomic<bool> has_left{false};
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      while (mapped.bring_part() || !has_left) sched_yield();
    });
  for (std::uint64_t at = 0; at < k_size; at += 4096) touch(at);
  const std::uint64_t until = base::monotonic_ns() + 60'000'000'000;
  while (cache->large().present_bytes(*file, {0, k_size}) < k_size && base::monotonic_ns() < until)
    sched_yield();
  mapped.unmapped(programs.data(), k_size);
  has_left = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(cache->large().present_bytes(*file, {0, k_size}), k_size);
}

}  // namespace
}  // namespace cube::prefetch
