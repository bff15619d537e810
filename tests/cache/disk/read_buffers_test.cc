// Buffers for reads from the disk. They are reused, are never shared by two readers at the same
// time, and are not inherited by a child.
#include "cache/tier/disk/read_buffers.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <thread>
#include <vector>

#include "tests/support/child.h"
#include "tests/support/sanitizers.h"

namespace cube::cache {
namespace {

bool is_mapped(const std::byte* at) {
  unsigned char there = 0;
  return mincore(const_cast<std::byte*>(at), 4096, &there) == 0;
}

TEST(ReadBuffers, ReuseABuffer) {
  ReadBuffers buffers;
  const std::byte* first = nullptr;
  for (int i = 0; i < 3; ++i) {
    const auto lease = buffers.take(100 << i * 6);
    ASSERT_TRUE(lease.has_value());
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(lease->data()) % 4096, 0U);
    if (first == nullptr) first = lease->data();
    EXPECT_EQ(lease->data(), first);
  }
}

TEST(ReadBuffers, EachReaderGetsOneAndFewAreKept) {
  ReadBuffers buffers;
  std::vector<const std::byte*> all;
  {
    std::vector<ReadBuffers::Lease> leases;
    for (int i = 0; i < 6; ++i) {
      auto lease = buffers.take(4096);
      ASSERT_TRUE(lease.has_value());
      for (const std::byte* other : all) EXPECT_NE(lease->data(), other);
      all.push_back(lease->data());
      leases.push_back(std::move(*lease));
    }
  }
  int mapped = 0;
  for (const std::byte* at : all) mapped += is_mapped(at) ? 1 : 0;
  EXPECT_EQ(mapped, static_cast<int>(ReadBuffers::k_kept));
}

TEST(ReadBuffers, LargeBufferHasTheRequestedSizeAndIsNotKept) {
  ReadBuffers buffers;
  const std::byte* at = nullptr;
  {
    const auto lease = buffers.take(5 << 20);
    ASSERT_TRUE(lease.has_value());
    ASSERT_GE(lease->size(), std::size_t{5 << 20});
    lease->data()[lease->size() - 1] = std::byte{1};
    at = lease->data();
  }
  EXPECT_FALSE(is_mapped(at));
}

TEST(ReadBuffers, ForkedChildGetsItsOwn) {
  ReadBuffers buffers;
  const std::byte* const parents = buffers.take(4096)->data();
  tests::Child child([&] {
    // ThreadSanitizer maps its own memory in a child, at any address.
    CHILD_CHECK(tests::k_tsan || !is_mapped(parents));
    buffers.forget();
    const auto own = buffers.take(4096);
    CHILD_CHECK(own.has_value());
    own->data()[0] = std::byte{1};
    return 0;
  });
  EXPECT_EQ(child.wait(), 0);
  EXPECT_TRUE(is_mapped(parents));
}

TEST(ReadBuffers, ThreadsNeverShareOne) {
  ReadBuffers buffers;
  std::vector<std::thread> threads;
  threads.reserve(8);
  std::atomic<int> wrong{0};
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20'000; ++i) {
        const auto lease = buffers.take(4096);
        if (!lease) continue;
        volatile int* const mark = reinterpret_cast<int*>(lease->data());
        *mark = t;
        if (i % 64 == 0) std::this_thread::yield();
        if (*mark != t) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace cube::cache
