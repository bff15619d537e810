// A fetch that proceeds as a program reads, but tested without a program: which bytes are fetched,
// published, refused and given back.
#include "cache/fill/partial_fill.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "cache/base/process/signal_frame.h"
#include "cache/base/round.h"
#include "cache/file_cache.h"
#include "cache/region/fetch_scope.h"
#include "cache/region/large/chunks.h"
#include "cache/region/listings.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_region.h"

namespace cube::cache {
namespace {

using base::Counter;
using Bytes = PartialFill::Bytes;

constexpr std::size_t k_size = 2'500'000;
constexpr std::uint64_t k_part = PartialFill::k_least_part;

std::string content_of(char seed) {
  std::string text(k_size, '\0');
  for (std::size_t i = 0; i < text.size(); ++i)
    text[i] = static_cast<char>(static_cast<std::size_t>(seed) + i / 777 + i);
  return text;
}

struct FillTest : testing::Test {
  explicit FillTest(void (*change)(base::Config&) = nullptr) : cache(64 * tests::k_mib, change) {}
  tests::TempDir dir;
  tests::TestCache cache;
  const std::string data = content_of('a');
  const std::string path = dir.write("f", data);

  // Opens a file like the shim.
  struct Open {
    PartialFill* fill = nullptr;
    int fd = -1;
  };
  Open open(
      const std::string& of, void (*before_kernel_open)() = [] {}) const {
    Open opened;
    OpenRequest request = tests::request_for(of, O_RDONLY);
    request.before_kernel_open = before_kernel_open;
    request.who = &opened;
    request.serve_fill = [](void* who, PartialFill& fill, int fd) {
      *static_cast<Open*>(who) = {&fill, fd};
      return true;
    };
    const OpenOutcome outcome = cache->open(request);
    EXPECT_EQ(outcome.is_filling, opened.fill != nullptr);
    if (!outcome.is_filling && outcome.kernel_fd >= 0) close(outcome.kernel_fd);
    return opened;
  }
  static void end(const Open& opened) {
    close(opened.fd);
    opened.fill->end();
  }
  Bytes bring(const Open& opened, std::uint64_t at, std::uint64_t n) const {
    return opened.fill->bring(FdEpoch(opened.fd), at, n);
  }
  std::string bytes(const Open& opened, std::uint64_t at, std::uint64_t n) const {
    return {reinterpret_cast<const char*>(opened.fill->record().data()) + at, n};
  }
  FlightSlot& flight() const {
    return cache->region().flight_slot(
        static_cast<std::uint32_t>(base::hash_path(path) % k_flight_slots));
  }
  // Returns the bytes that the next open would serve, or an empty string if they are not in memory.
  std::string kept() const {
    const Pin pin = cache->find(tests::request_for(path, O_RDONLY));
    return pin && tests::is_sound(cache->region(), *pin) ? std::string(tests::bytes_of(*pin))
                                                         : std::string();
  }
};

TEST_F(FillTest, FetchesRequestedPartsAndPublishesWithTheLast) {
  const Open opened = open(path);
  ASSERT_NE(opened.fill, nullptr);
  EXPECT_EQ(cache.count(Counter::origin_bytes), 0U);
  const std::uint64_t of_the_open = cache.count(Counter::miss_ns);
  EXPECT_GT(of_the_open, 0U);
  EXPECT_EQ(bring(opened, k_size - 10, 10), Bytes::here);
  EXPECT_EQ(bytes(opened, k_size - 10, 10), data.substr(k_size - 10));
  const std::uint64_t of_a_read = cache.count(Counter::miss_ns);
  EXPECT_GT(of_a_read, of_the_open);
  EXPECT_EQ(bring(opened, k_size - 10, 10), Bytes::here);
  EXPECT_EQ(cache.count(Counter::miss_ns), of_a_read) << "it was here already";
  EXPECT_LE(cache.count(Counter::origin_bytes), k_part);
  EXPECT_EQ(kept(), "");
  for (std::uint64_t at = 0; at < k_size; at += 100'000) {
    ASSERT_EQ(bring(opened, at, 100'000), Bytes::here);
    ASSERT_EQ(bytes(opened, at, 100'000), data.substr(at, 100'000));
  }
  EXPECT_EQ(cache.count(Counter::origin_bytes), k_size);
  EXPECT_EQ(kept(), data);
  EXPECT_EQ(bring(opened, 0, k_size), Bytes::here) << "from memory, after it was published";
  end(opened);
  EXPECT_EQ(kept(), data);
}

// Between the check of the fd and the read, another thread closes the fd, and an open reuses it.
TEST_F(FillTest, ReadThroughAnFdClosedMeanwhileDoesNotCount) {
  const Open opened = open(path);
  const FdEpoch before(opened.fd);
  const int own = dup(opened.fd);
  FdEpoch::file_leaves(opened.fd);
  const int other = ::open(dir.write("other", content_of('z')).c_str(), O_RDONLY);
  ASSERT_EQ(dup2(other, opened.fd), opened.fd);
  EXPECT_EQ(opened.fill->bring(before, 0, k_size), Bytes::at_origin);
  ASSERT_EQ(dup2(own, opened.fd), opened.fd);
  EXPECT_EQ(bring(opened, 0, k_size), Bytes::here);
  EXPECT_EQ(kept(), data);
  close(own);
  close(other);
  end(opened);
}

// A reader that joined the fetch closes its fd while the first one reads and publishes.
TEST_F(FillTest, CloseOfAnotherFdOfTheFileDropsNothing) {
  const Open first = open(path), second = open(path);
  ASSERT_EQ(second.fill, first.fill);
  const FdEpoch before(first.fd);
  FdEpoch::file_leaves(second.fd);
  EXPECT_EQ(first.fill->bring(before, 0, k_size), Bytes::here);
  EXPECT_EQ(kept(), data);
  end(second);
  end(first);
}

TEST_F(FillTest, HandlerThatInterruptsAFetchFetchesNothing) {
  base::remember_first_thread();
  const Open opened = open(path);
  EXPECT_EQ(bring(opened, 0, 1000), Bytes::here);
  {
    const FetchScope interrupted;
    struct sigaction action {};
    static Bytes answers[2];
    static const Open* of = nullptr;
    of = &opened;
    action.sa_handler = [](int) {
      const FdEpoch fd(of->fd);
      answers[0] = of->fill->bring(fd, 0, 1000);
      answers[1] = of->fill->bring(fd, 1'000'000, 1000);
    };
    struct sigaction former {};
    sigaction(SIGUSR1, &action, &former);
    raise(SIGUSR1);
    sigaction(SIGUSR1, &former, nullptr);
    EXPECT_EQ(answers[0], Bytes::here);
    EXPECT_EQ(answers[1], Bytes::at_origin);
  }
  EXPECT_EQ(bring(opened, 0, k_size), Bytes::here);
  EXPECT_EQ(kept(), data);
  end(opened);
}

TEST_F(FillTest, AChangeBeforeTheLastPartIsRefused) {
  const Open opened = open(path);
  EXPECT_EQ(bring(opened, 0, k_size - 2 * k_part), Bytes::here);
  const int writer = ::open(path.c_str(), O_WRONLY);
  EXPECT_EQ(pwrite(writer, "x", 1, 0), 1);
  close(writer);
  EXPECT_EQ(bring(opened, k_size - 2 * k_part, 2 * k_part), Bytes::here) << "it is read now";
  EXPECT_FALSE(opened.fill->goes_on());
  EXPECT_EQ(bring(opened, 0, 1000), Bytes::at_origin);
  EXPECT_EQ(kept(), "");
  end(opened);
}

TEST_F(FillTest, ReaderThatGoesBackAfterAChangeGetsNoOldBytes) {
  const Open opened = open(path);
  EXPECT_EQ(bring(opened, 0, 500'000), Bytes::here);
  EXPECT_EQ(bring(opened, 0, 1000), Bytes::here);
  const int writer = ::open(path.c_str(), O_WRONLY);
  EXPECT_EQ(pwrite(writer, "x", 1, 0), 1);
  close(writer);
  EXPECT_EQ(bring(opened, 0, 1000), Bytes::at_origin);
  EXPECT_FALSE(opened.fill->goes_on());
  end(opened);
}

TEST_F(FillTest, FetchingMissingBytesNeedsNoRevalidation) {
  const Open opened = open(path);
  EXPECT_EQ(bring(opened, k_size - 1000, 1000), Bytes::here);
  const int writer = ::open(path.c_str(), O_WRONLY);
  EXPECT_EQ(pwrite(writer, "x", 1, 0), 1);
  close(writer);
  EXPECT_EQ(bring(opened, 0, 1000), Bytes::here);
  EXPECT_EQ(bring(opened, 0, 1000), Bytes::at_origin);
  end(opened);
}

TEST_F(FillTest, CountsNoStatThatTheKernelAnswers) {
  const Open opened = open(path);
  EXPECT_EQ(bring(opened, 0, 1000), Bytes::here);
  const std::uint64_t stats = cache.count(Counter::origin_stats);
  EXPECT_EQ(bring(opened, 0, 1000), Bytes::here);
  EXPECT_EQ(cache.count(Counter::origin_stats), stats);
  EXPECT_EQ(bring(opened, 0, k_size), Bytes::here);
  EXPECT_EQ(cache.count(Counter::origin_stats), stats + 1) << "before it is published";
  end(opened);
}

TEST_F(FillTest, WriteThroughTheShimEndsTheFill) {
  const Open opened = open(path);
  EXPECT_EQ(bring(opened, 0, 1000), Bytes::here);
  EXPECT_TRUE(opened.fill->goes_on());
  const auto stat = stat_path(AT_FDCWD, path.c_str(), 0);
  cache->changes().writing_begins(path, *stat);
  EXPECT_FALSE(opened.fill->goes_on());
  EXPECT_EQ(bring(opened, 1000, 1000), Bytes::at_origin);
  cache->changes().writing_ends(*stat);
  end(opened);
}

TEST_F(FillTest, TruncatedFileIsLeftToTheKernel) {
  const Open opened = open(path);
  EXPECT_EQ(truncate(path.c_str(), 1000), 0);
  EXPECT_EQ(bring(opened, 100'000, 1000), Bytes::at_origin);
  EXPECT_FALSE(opened.fill->goes_on());
  end(opened);
}

TEST_F(FillTest, ALongerFileIsNotKept) {
  const Open opened = open(path);
  const int writer = ::open(path.c_str(), O_WRONLY | O_APPEND);
  EXPECT_EQ(write(writer, "x", 1), 1);
  close(writer);
  EXPECT_EQ(bring(opened, 0, k_size), Bytes::at_origin) << "the last part has another end";
  EXPECT_EQ(kept(), "");
  end(opened);
}

// Opens 65 files; there are 64 partial fills.
TEST_F(FillTest, FileIsFetchedAsAWholeIfAllPartialFillsAreTaken) {
  std::vector<Open> all;
  const tests::TestCache large{160 * tests::k_mib};
  const std::string small = dir.write("small", data.substr(0, 1 << 20));
  for (int i = 0; i < 65; ++i) {
    Open opened;
    OpenRequest request = tests::request_for(small, O_RDONLY);
    const std::string link = small + std::to_string(i);
    ASSERT_EQ(::link(small.c_str(), link.c_str()), 0);
    request.key = link;
    request.path = link.c_str();
    request.who = &opened;
    request.serve_fill = [](void* who, PartialFill& fill, int fd) {
      *static_cast<Open*>(who) = {&fill, fd};
      return true;
    };
    const OpenOutcome outcome = large->open(request);
    EXPECT_EQ(outcome.error, 0);
    EXPECT_EQ(static_cast<bool>(outcome.pin), i == 64) << i;
    if (opened.fill != nullptr) all.push_back(opened);
  }
  EXPECT_EQ(all.size(), 64U);
  for (const Open& opened : all) end(opened);
}

// Reads like a program that opens the file, reads bytes and closes the file.
struct KeptPartsTest : FillTest {
  explicit KeptPartsTest(void (*change)(base::Config&) = nullptr) : FillTest(change) { age(); }
  // Gives the file times that would show a change.
  void age() const {
    const timespec times[2] = {{1'000'000'000, 0}, {1'000'000'000, 0}};
    EXPECT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  }
  std::uint64_t origin_bytes() const { return cache.count(Counter::origin_bytes); }
  void read(std::uint64_t at, std::uint64_t n, const std::string& right) const {
    read_of(path, at, n, right);
  }
  void read_of(const std::string& of, std::uint64_t at, std::uint64_t n,
               const std::string& right) const {
    const Open opened = open(of);
    ASSERT_NE(opened.fill, nullptr);
    EXPECT_EQ(bring(opened, at, n), Bytes::here);
    EXPECT_TRUE(bytes(opened, at, n) == right.substr(at, n));
    opened.fill->finish_at_close(opened.fd);
    end(opened);
  }
  std::uint64_t chunk_bytes() const { return figures_of_chunks(cache->region()).bytes; }
};

struct WithoutBlocksTest : KeptPartsTest {
  WithoutBlocksTest() : KeptPartsTest([](base::Config& config) { config.block = 0; }) {}
};

TEST_F(WithoutBlocksTest, SecondPartialReadFetchesTheWholeFile) {
  read(0, 1000, data);
  EXPECT_EQ(kept(), "");
  read(0, 1000, data);
  EXPECT_TRUE(kept() == data);
}

TEST_F(KeptPartsTest, PartsOfAFileThatWasJustWrittenAreNotKept) {
  dir.write("f", data);
  read(0, 1000, data);
  EXPECT_EQ(chunk_bytes(), 0U);
}

TEST_F(KeptPartsTest, NextOpenReusesThePartsThatWereRead) {
  read(k_part, k_part, data);
  EXPECT_EQ(origin_bytes(), k_part);
  read(k_part, k_part, data);
  EXPECT_EQ(origin_bytes(), k_part);
  // The last part ends at the end of the file.
  read(k_size - 10, 10, data);
  const std::uint64_t last = k_size % k_part;
  EXPECT_EQ(origin_bytes(), k_part + last);
  read(k_size - 10, 10, data);
  read(k_part, k_part, data);
  EXPECT_EQ(origin_bytes(), k_part + last);
  EXPECT_EQ(kept(), "");
  EXPECT_EQ(chunk_bytes(), k_part + base::round_up(last, Chunks::k_page_bytes));
}

TEST_F(KeptPartsTest, CompletedRecordReplacesThem) {
  read(0, 2 * k_part, data);
  read(0, k_size, data);
  EXPECT_EQ(origin_bytes(), k_size);
  EXPECT_TRUE(kept() == data);
  EXPECT_EQ(chunk_bytes(), 0U);
}

TEST_F(KeptPartsTest, CloseCompletesOnlyAFileThatIsNearlyWhole) {
  for (int reads = 1; reads <= 11; ++reads) {
    read(0, reads * 3 * k_part, data);
    EXPECT_EQ(origin_bytes(), reads * 3 * k_part);
    EXPECT_TRUE(kept().empty());
  }
  read(0, 35 * k_part, data);
  EXPECT_TRUE(kept() == data);
  EXPECT_EQ(origin_bytes(), k_size);
}

TEST_F(KeptPartsTest, CloseReadsNoMoreThanOneMiB) {
  const std::string large = dir.write("large", "");
  EXPECT_EQ(truncate(large.c_str(), 15 << 20), 0);
  const timespec times[2] = {{1'000'000'000, 0}, {1'000'000'000, 0}};
  EXPECT_EQ(utimensat(AT_FDCWD, large.c_str(), times, 0), 0);
  const std::string zeros(15 << 20, '\0');
  read_of(large, 0, (14 << 20) - k_part, zeros);
  EXPECT_EQ(origin_bytes(), (14 << 20) - k_part);
  read_of(large, 0, 14 << 20, zeros);
  EXPECT_EQ(origin_bytes(), 15 << 20);
}

TEST_F(KeptPartsTest, AnotherVersionOfTheFileStartsOver) {
  read(0, k_part, data);
  const std::string other = content_of('b');
  dir.write("f", other);
  age();
  read(0, k_part, other);
  EXPECT_EQ(origin_bytes(), 2 * k_part);
}

TEST_F(KeptPartsTest, YieldAllRoomToRecords) {
  const std::string zeros(k_size, '\0');
  const timespec times[2] = {{1'000'000'000, 0}, {1'000'000'000, 0}};
  for (int i = 0; i < 40; ++i) {
    const std::string header = dir.write("h" + std::to_string(i), "");
    EXPECT_EQ(truncate(header.c_str(), k_size), 0);
    EXPECT_EQ(utimensat(AT_FDCWD, header.c_str(), times, 0), 0);
    read_of(header, 0, 1000, zeros);
  }
  EXPECT_GT(chunk_bytes(), 0U);
  const RegionLayout& layout = cache->region().layout();
  // A record of this file occupies a run of segments.
  const std::uint64_t run = (k_size + layout.segment_bytes - 1) / layout.segment_bytes;
  const std::uint64_t most = layout.segment_count / run - 1;
  for (std::uint64_t i = 0; i < most; ++i) {
    const std::string whole = dir.write("w" + std::to_string(i), "");
    EXPECT_EQ(truncate(whole.c_str(), k_size), 0);
    read_of(whole, 0, k_size, zeros);
    EXPECT_TRUE(cache->find(tests::request_for(whole, O_RDONLY))) << i;
  }
  EXPECT_EQ(chunk_bytes(), 0U);
}

TEST_F(KeptPartsTest, ChangeBeforeTheCloseDropsThem) {
  const Open opened = open(path);
  EXPECT_EQ(bring(opened, 0, 1000), Bytes::here);
  const int writer = ::open(path.c_str(), O_WRONLY);
  EXPECT_EQ(pwrite(writer, "x", 1, 0), 1);
  close(writer);
  opened.fill->finish_at_close(opened.fd);
  end(opened);
  EXPECT_EQ(chunk_bytes(), 0U);
}

TEST_F(FillTest, NextReadFetchesTheRestForAWaitingProcess) {
  const Open opened = open(path);
  FlightSlot& slot = flight();
  ASSERT_NE(slot.word.load(), 0U);
  const std::uint32_t wakeups = slot.wakeups.load();
  slot.waiting.store(1);
  EXPECT_EQ(bring(opened, 0, 1000), Bytes::here);
  EXPECT_EQ(cache.count(Counter::origin_bytes), k_part)
      << "woken, it has not yet said that it waits on";
  EXPECT_NE(slot.wakeups.load(), wakeups);
  slot.waiting.store(1);
  EXPECT_EQ(bring(opened, 1000, 1000), Bytes::here);
  EXPECT_EQ(kept(), data);
  EXPECT_EQ(slot.word.load(), 0U) << "the turn is over";
  end(opened);
}

TEST_F(FillTest, BytesReadInAListedDirectoryAreCounted) {
  Listings listings(cache->region());
  const std::string directory = path.substr(0, path.rfind('/'));
  listings.note_listed(directory);
  const ListedRow* const row = listings.find(base::hash_path(directory));
  ASSERT_NE(row, nullptr);
  for (const std::uint64_t n : {std::uint64_t{1000}, std::uint64_t{k_size}}) {
    const std::uint32_t before = row->read_kib.load();
    const Open opened = open(path);
    EXPECT_EQ(bring(opened, 0, n), Bytes::here);
    end(opened);
    EXPECT_EQ(row->read_kib.load() - before, (n == k_size ? k_size + 1023 : k_part) / 1024);
  }
}

// The first open holds the flight until the second one waits for it, and then turns it into parts.
TEST_F(FillTest, OpenThatWaitsForTheFlightJoinsItsParts) {
  static const FlightSlot* slot = nullptr;
  slot = &flight();
  Open second;
  std::thread waiter([&] {
    while (slot->word.load() == 0) sched_yield();
    second = open(path);
  });
  const Open first = open(path, [] {
    while (slot->waiting.load() == 0) sched_yield();
  });
  waiter.join();
  ASSERT_NE(first.fill, nullptr);
  ASSERT_EQ(second.fill, first.fill);
  EXPECT_EQ(cache.count(Counter::bypassed_busy), 0U);
  EXPECT_EQ(bring(first, 0, k_size / 2), Bytes::here);
  EXPECT_EQ(bring(second, 0, k_size), Bytes::here);
  EXPECT_EQ(cache.count(Counter::origin_bytes), k_size);
  EXPECT_EQ(kept(), data);
  end(first);
  end(second);
}

TEST_F(FillTest, OpenJoinsPartsWhileMemoryIsFull) {
  const Open first = open(path);
  ASSERT_NE(first.fill, nullptr);
  std::vector<OpenOutcome> others;
  for (const std::size_t size : {k_size, std::size_t{50'000}, std::size_t{2'000}}) {
    do {
      const std::string name = std::to_string(others.size());
      const std::string other = dir.write(name, data.substr(0, size));
      others.push_back(cache->open(tests::request_for(other, O_RDONLY)));
    } while (others.back().pin);
    close(others.back().kernel_fd);
  }
  const Open second = open(path);
  EXPECT_EQ(second.fill, first.fill);
  end(first);
  if (second.fill != nullptr) end(second);
}

// A forked child has its parent's memory, and shares the region with it.
TEST_F(FillTest, ForkedChildForgetsFillsAndTheParentContinues) {
  const Open opened = open(path);
  EXPECT_EQ(bring(opened, 0, 1000), Bytes::here);
  const pid_t child = fork();
  if (child == 0) {
    FileCache::forget_fills();
    const bool goes_on = opened.fill->goes_on();
    const bool is_coming = PartialFill::may_be_coming(base::hash_path(path));
    end(opened);
    _exit(goes_on || is_coming ? 1 : 0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(opened.fill->goes_on());
  const FlightSlot& slot = flight();
  EXPECT_NE(slot.word.load(), 0U) << "the turn is the parent's";
  // If the room were given back, another file would get it.
  const std::string other = dir.write("other", content_of('z'));
  const OpenOutcome second = cache->open(tests::request_for(other, O_RDONLY));
  ASSERT_TRUE(second.pin);
  EXPECT_EQ(bring(opened, 0, k_size), Bytes::here);
  EXPECT_EQ(tests::bytes_of(*second.pin), content_of('z'));
  EXPECT_EQ(kept(), data);
  end(opened);
}

// A process can open a file a second time while its bytes arrive.
TEST_F(FillTest, SecondOpenSharesTheFetchAndContinuesAfterTheFirstClose) {
  const auto fetched = [&] { return cache.count(Counter::origin_bytes); };
  const Open former = open(path);
  EXPECT_EQ(bring(former, 0, 1000), Bytes::here);
  end(former);
  const std::uint64_t before = fetched();
  const Open first = open(path), second = open(path);
  ASSERT_NE(first.fill, nullptr);
  ASSERT_EQ(second.fill, first.fill);
  EXPECT_EQ(bring(first, 0, 1000), Bytes::here);
  first.fill->finish_at_close(first.fd);
  EXPECT_EQ(fetched() - before, k_part) << "the second open need not wait for the rest";
  end(first);
  EXPECT_EQ(bring(second, 0, k_size), Bytes::here);
  EXPECT_EQ(fetched() - before, k_size);
  EXPECT_EQ(kept(), data);
  end(second);
}

TEST_F(FillTest, OpenThatSharesAFetchMakesRoomForTheLowestFdFirst) {
  static int calls;
  calls = 0;
  const Open first = open(path);
  Open second;
  OpenRequest request = tests::request_for(path, O_RDONLY);
  request.before_kernel_open = [] { ++calls; };
  request.who = &second;
  request.serve_fill = [](void* who, PartialFill& fill, int fd) {
    *static_cast<Open*>(who) = {&fill, fd};
    return calls == 1;
  };
  EXPECT_TRUE(cache->open(request).is_filling);
  end(second);
  end(first);
}

TEST_F(FillTest, OpenOfANewVersionSharesNoFetch) {
  const Open former = open(path);
  dir.write("f", content_of('b') + "b");
  EXPECT_EQ(open(path).fill, nullptr);
  end(former);
  EXPECT_FALSE(PartialFill::may_be_coming(base::hash_path(path)));
  const Open now = open(path);
  EXPECT_NE(now.fill, nullptr) << "a user was left behind";
  end(now);
}

TEST_F(FillTest, OpenThatCannotServeASharedFetchLeavesNoUserBehind) {
  const Open first = open(path);
  OpenRequest request = tests::request_for(path, O_RDONLY);
  request.serve_fill = [](void*, PartialFill&, int) { return false; };
  const OpenOutcome second = cache->open(request);
  EXPECT_FALSE(second.is_filling);
  if (second.kernel_fd >= 0) close(second.kernel_fd);
  end(first);
  EXPECT_FALSE(PartialFill::may_be_coming(base::hash_path(path)));
}

TEST_F(FillTest, FlightEndsWithTheFill) {
  const FlightSlot& slot = flight();
  const Open opened = open(path);
  EXPECT_NE(slot.word.load(), 0U);
  end(opened);
  EXPECT_EQ(slot.word.load(), 0U);
}

}  // namespace
}  // namespace cube::cache
