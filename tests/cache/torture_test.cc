// Four processes with threads use a region that is smaller than the data. Every byte is checked.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "cache/file_cache.h"
#include "cache/region/lanes.h"
#include "cache/report/job_totals.h"
#include "tests/support/child.h"
#include "tests/support/sanitizers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_region.h"

namespace cube::cache {
namespace {

using base::Counter;
using tests::Child;
using tests::k_mib;
using tests::request_for;
using tests::TestRegion;

TEST(Torture, FourProcessesReadMoreThanFitsAndEveryByteIsRight) {
  constexpr int k_files = 400, k_processes = 4, k_threads = 3, k_epochs = 3;
  const tests::TempDir dir;
  const TestRegion region(20 * k_mib);
  const auto size_of = [](std::size_t i) {
    return i % 40 == 7 ? 2'200'000 + i : (i * 7919) % 100'000;
  };
  std::vector<std::string> paths;
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < k_files; ++i) {
    paths.push_back(
        dir.write(std::to_string(i), tests::content_of(std::to_string(i), 1, size_of(i))));
    bytes += size_of(i);
  }
  ASSERT_GT(bytes, region->layout().file_bytes);
  std::vector<Child> children;
  for (unsigned p = 0; p < k_processes; ++p) {
    children.emplace_back([&] {
      FileCache* const cache =
          tests::attach_cache(tests::config_for(region.options), region.options.job);
      CHILD_CHECK(cache != nullptr);
      std::atomic<int> wrong{0};
      std::vector<std::thread> threads;
      for (unsigned t = 0; t < k_threads; ++t) {
        threads.emplace_back([&, t] {
          std::vector<std::size_t> order(k_files);
          for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
          std::minstd_rand random(p * 100 + t + 1);
          std::string buffer;
          for (int epoch = 0; epoch < k_epochs; ++epoch) {
            std::shuffle(order.begin(), order.end(), random);
            for (const std::size_t i : order) {
              const OpenOutcome outcome = cache->open(request_for(paths[i]));
              const std::string expected = tests::content_of(std::to_string(i), 1, size_of(i));
              if (outcome.pin) {
                wrong += tests::bytes_of(*outcome.pin) == expected ? 0 : 1;
              } else if (outcome.kernel_fd >= 0) {
                buffer.assign(expected.size() + 1, '#');
                const ssize_t n = read(outcome.kernel_fd, buffer.data(), buffer.size());
                wrong += n == static_cast<ssize_t>(expected.size()) &&
                                 buffer.compare(0, expected.size(), expected) == 0
                             ? 0
                             : 1;
                close(outcome.kernel_fd);
              } else {
                ++wrong;
              }
            }
          }
        });
      }
      for (auto& thread : threads) thread.join();
      CHILD_CHECK(wrong.load() == 0);
      CHILD_CHECK(pins_of(cache->region(), cache->region().own_slot()) == 0);
      cache->detach();
      return 0;
    });
  }
  for (auto& child : children) EXPECT_EQ(child.wait(), 0);
  const JobTotals totals = collect(*region, region->own_job());
  const auto n = [&](Counter counter) { return totals.totals[counter]; };
  EXPECT_EQ(totals.opens(), std::uint64_t{k_files} * k_processes * k_threads * k_epochs);
  EXPECT_EQ(n(Counter::hits_ram) + n(Counter::misses) + n(Counter::bypassed_full) +
                n(Counter::bypassed_busy),
            totals.opens());
  EXPECT_GT(n(Counter::hits_ram), 0U);
  EXPECT_EQ(n(Counter::misses), totals.ram_entries) << "each record was fetched by one";
  EXPECT_LE(totals.ram_used, totals.ram_capacity);
  // Nothing is fetched twice: there is one record for each path.
  RamTier tier(*region);
  std::size_t found = 0;
  for (const auto& path : paths) found += tests::find(tier, path) ? 1 : 0;
  EXPECT_EQ(found, totals.ram_entries);
  std::printf(
      "%llu opens, %llu hits, %llu misses, %llu past a full region; %llu MiB of data in %llu MiB\n",
      static_cast<unsigned long long>(totals.opens()),
      static_cast<unsigned long long>(n(Counter::hits_ram)),
      static_cast<unsigned long long>(n(Counter::misses)),
      static_cast<unsigned long long>(n(Counter::bypassed_full)),
      static_cast<unsigned long long>(bytes >> 20),
      static_cast<unsigned long long>(totals.ram_capacity >> 20));
}

}  // namespace
}  // namespace cube::cache
