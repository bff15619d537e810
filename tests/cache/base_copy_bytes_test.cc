// Each copy routine copies the right bytes for every pair of offsets in a page, and touches no
// other bytes.
#include "cache/base/memory/copy_bytes.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <string>
#include <vector>

namespace cube::base {
namespace {

constexpr std::size_t k_test_page = 4096;
constexpr std::size_t k_room = 80 * k_test_page;

// Whole pages, followed by an inaccessible page.
class Pages {
 public:
  Pages()
      : data_(static_cast<std::byte*>(::mmap(nullptr, k_room + k_test_page, PROT_READ | PROT_WRITE,
                                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    ::mprotect(data_ + k_room, k_test_page, PROT_NONE);
  }
  ~Pages() { ::munmap(data_, k_room + k_test_page); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  std::byte* data() const { return data_; }
  std::byte* end() const { return data_ + k_room; }

 private:
  std::byte* data_;
};

constexpr std::byte k_untouched{0xee};

std::byte byte_of(std::size_t at) { return static_cast<std::byte>(at * 7 + (at >> 8) * 13); }

class CopyBytes : public testing::TestWithParam<CopyWay> {
 protected:
  void SetUp() override {
#if defined(__x86_64__)
    if (GetParam() == CopyWay::ahead && !__builtin_cpu_supports("avx2"))
      GTEST_SKIP() << "this processor does not have it";
#endif
    for (std::size_t at = 0; at < k_room; ++at) from_.data()[at] = byte_of(at);
  }

  // The source begins at `begin`. The target's offset in its page is `distance` bytes larger, and
  // 64 bytes of room follow it.
  void expect_copied(std::size_t begin, std::size_t distance, std::size_t n) {
    std::byte* const to = to_.data() + begin + distance;
    std::memset(to - 64, static_cast<int>(k_untouched), n + 128);
    copy_long(GetParam(), to, from_.data() + begin, n);
    ASSERT_EQ(std::memcmp(to, from_.data() + begin, n), 0) << begin << " " << distance << " " << n;
    for (std::size_t i = 1; i <= 64; ++i) {
      ASSERT_EQ(to[-static_cast<std::ptrdiff_t>(i)], k_untouched)
          << begin << " " << distance << " " << n;
      ASSERT_EQ(to[n + i - 1], k_untouched) << begin << " " << distance << " " << n;
    }
  }

  Pages from_, to_;
};

TEST_P(CopyBytes, CopiesCorrectlyAtEachDistance) {
  for (const std::size_t n :
       {k_long_copy, k_long_copy + 1, std::size_t{4095}, std::size_t{4096}, std::size_t{4097},
        std::size_t{5000}, std::size_t{16383}, std::size_t{66001}, std::size_t{200 << 10},
        (std::size_t{257} << 10) + 129}) {
    for (const std::size_t begin : {std::size_t{64}, std::size_t{4096}, std::size_t{4096 + 63}}) {
      for (const std::size_t distance : {0, 1, 8, 16, 31, 32, 48, 63, 64, 160, 2048, 4095})
        expect_copied(begin, distance, n);
    }
  }
}

TEST_P(CopyBytes, CopiesCorrectlyForEachRemainder) {
  for (std::size_t n = 8192; n < 8192 + 260; ++n) expect_copied(4096, 16, n);
}

TEST_P(CopyBytes, ReadsNothingPastTheEnd) {
  for (const std::size_t n :
       {k_long_copy, std::size_t{4096}, std::size_t{10000}, std::size_t{260001}}) {
    copy_long(GetParam(), to_.end() - n, from_.end() - n, n);
    EXPECT_EQ(std::memcmp(to_.end() - n, from_.end() - n, n), 0) << n;
  }
}

std::string name_of(const testing::TestParamInfo<CopyWay>& way) {
  if (way.param == CopyWay::plain) return "plain";
  return way.param == CopyWay::ahead ? "ahead" : "by_page";
}

INSTANTIATE_TEST_SUITE_P(Ways, CopyBytes,
                         testing::Values(CopyWay::plain, CopyWay::ahead, CopyWay::by_page),
                         name_of);

TEST(CopyWayTest, IsSupportedByTheProcessor) {
  EXPECT_NE(copy_way(), CopyWay::unknown);
  EXPECT_EQ(copy_way(), copy_way());
}

TEST(CopyBytesTest, CopiesExactlyTheSizeAndAcceptsNullForZeroBytes) {
  copy_bytes(nullptr, nullptr, 0);
  std::vector<std::byte> from(3000), to(3000);
  for (std::size_t at = 0; at < from.size(); ++at) from[at] = byte_of(at);
  for (const std::size_t n : {std::size_t{1}, k_long_copy - 1, k_long_copy, from.size()}) {
    std::fill(to.begin(), to.end(), std::byte{});
    copy_bytes(to.data(), from.data(), n);
    EXPECT_TRUE(std::equal(to.begin(), to.begin() + static_cast<std::ptrdiff_t>(n), from.begin()));
    EXPECT_TRUE(std::all_of(to.begin() + static_cast<std::ptrdiff_t>(n), to.end(),
                            [](std::byte b) { return b == std::byte{}; }));
  }
}

}  // namespace
}  // namespace cube::base
