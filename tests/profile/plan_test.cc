#include <fmt/format.h>
#include <gtest/gtest.h>

#include <numeric>

#include "cache/region/layout.h"
#include "shim/cli/plan/forecast.h"

namespace cube::cli {
namespace {

namespace recorded = shim::profile;
constexpr std::uint64_t k_mib = 1 << 20, k_ms = 1'000'000;

struct Use {
  std::uint64_t hash = 0, at_ms = 0, size = 0;
  std::uint64_t opens = 1, soon = 0, from_origin = 0, from_tier = 0, maps = 0;
  std::uint64_t memory_ms = 0, origin_ms = 0, read_ms = 0, tier_ms = 0, until_ms = 0;
};

std::string line_of(const Use& use) {
  std::array<std::uint64_t, recorded::k_file_counts> counts{};
  counts[recorded::k_first_ns] = use.at_ms * k_ms;
  counts[recorded::k_last_ns] = std::max(use.until_ms, use.at_ms + 1) * k_ms;
  counts[recorded::k_file_size] = use.size;
  counts[recorded::k_file_bytes] = use.size * use.opens;
  counts[recorded::k_file_opens] = use.opens;
  counts[recorded::k_soon_again] = use.soon;
  counts[recorded::k_file_maps] = use.maps;
  counts[recorded::k_from_origin] = use.from_origin;
  counts[recorded::k_from_tier] = use.from_tier;
  counts[recorded::k_file_memory_ns] = use.memory_ms * k_ms;
  counts[recorded::k_file_origin_ns] = use.origin_ms * k_ms;
  counts[recorded::k_file_read_ns] = use.read_ms * k_ms;
  counts[recorded::k_file_tier_ns] = use.tier_ms * k_ms;
  return fmt::format("file\t{:x}\t{}\n", use.hash, fmt::join(counts, ","));
}

std::string process(const std::vector<Use>& uses, bool has_cache = false) {
  std::string text =
      fmt::format("cubeshim-profile\t3\t42\t1\t0\t1000000000000\t16\t{}\n", has_cache ? 0 : 1);
  for (const Use& use : uses) text += line_of(use);
  return text + "end\n";
}

std::string why_not(const std::string& text) {
  Observed observed;
  std::string why;
  return observe({parse_raw(text)}, 0, observed, why) ? "it is one" : why;
}

Observed observed_by(const std::vector<std::string>& processes) {
  std::vector<RawFile> files;
  for (const auto& text : processes) files.push_back(parse_raw(text));
  Observed observed;
  std::string why;
  EXPECT_TRUE(observe(files, 0, observed, why)) << why;
  return observed;
}

// A job that reads `files` files of a size one after the other, in each of two epochs, and takes 2
// ms for each at the origin and 1 ms for other work.
Observed plain_job(std::uint64_t files, std::uint64_t size) {
  std::vector<Use> uses;
  for (std::uint64_t i = 0; i < files; ++i)
    uses.push_back({.hash = i + 1,
                    .at_ms = 3 * i,
                    .size = size,
                    .opens = 2,
                    .from_origin = 2,
                    .origin_ms = 4,
                    .read_ms = 2,
                    .until_ms = 3 * (files + i + 1)});
  return observed_by({process(uses)});
}

base::Config defaults() {
  return base::parse_config([](const char*) { return nullptr; }).config;
}

Epoch later(const Observed& observed, const Wish& wish) {
  return forecast(observed, wish, defaults()).later;
}

TEST(ObservedRun, InvalidFilesAreRefusedWithTheReason) {
  const std::string whole = process({{.hash = 1, .size = 10, .from_origin = 1, .origin_ms = 1}});
  EXPECT_EQ(why_not(whole), "it is one");
  std::string other = whole;
  other.replace(other.find("\t3\t"), 3, "\t2\t");
  EXPECT_NE(why_not(other).find("another version"), std::string::npos);
  EXPECT_NE(why_not(whole.substr(0, whole.size() - 4)).find("cut off"), std::string::npos);
  EXPECT_NE(why_not(whole + "nonsense\n").find("never writes"), std::string::npos);
  EXPECT_NE(why_not(process({})).find("empty"), std::string::npos);
  EXPECT_NE(why_not("").find("empty"), std::string::npos);
}

TEST(ObservedRun, ProcessesThatReadConcurrentlyAreReaders) {
  const auto half = [](std::uint64_t from) {
    std::vector<Use> uses;
    for (std::uint64_t i = 0; i < 50; ++i)
      uses.push_back({.hash = from + i,
                      .at_ms = 10 * i,
                      .size = 10,
                      .from_origin = 1,
                      .origin_ms = 4,
                      .until_ms = 10 * (i + 1)});
    return uses;
  };
  const std::vector<Use> labels{{.hash = 999, .size = 10, .from_origin = 1, .until_ms = 500}};
  const Observed observed = observed_by({process(half(1)), process(half(100)), process(labels)});
  EXPECT_EQ(observed.processes, 3U);
  EXPECT_NEAR(observed.readers, 2, 0.01) << "a process that reads its labels is none";
  EXPECT_NEAR(observed.seconds, 0.5, 0.001);
  EXPECT_EQ(observed.files.size(), 101U);
}

TEST(ObservedRun, FileOfSeveralProcessesIsOne) {
  const Use first{.hash = 7, .at_ms = 20, .size = 5, .from_origin = 1, .origin_ms = 2};
  const Use second{.hash = 7, .at_ms = 10, .size = 9, .from_origin = 1, .origin_ms = 4};
  const Use third{.hash = 7, .at_ms = 30, .size = 5, .from_origin = 1, .origin_ms = 3};
  const Observed observed = observed_by({process({first}), process({second}), process({third})});
  ASSERT_EQ(observed.files.size(), 1U);
  EXPECT_EQ(observed.files[0].at(recorded::k_first_ns), 10 * k_ms);
  EXPECT_EQ(observed.bytes, 9U);
  EXPECT_EQ(observed.epochs, 3);
  EXPECT_EQ(observed.origin_ns.value_or(0), 3 * k_ms);
  EXPECT_FALSE(observed.memory_ns);
}

TEST(ObservedRun, FilesThatAreOpenedAllTheTimeMakeNoMoreEpochs) {
  std::vector<Use> uses;
  for (std::uint64_t i = 0; i < 9; ++i) uses.push_back({.hash = i + 1, .opens = 6, .soon = 3});
  uses.push_back({.hash = 100, .opens = 1000});
  EXPECT_NEAR(observed_by({process(uses)}).epochs, 3, 0.5);
}

TEST(Forecast, FullMemoryKeepsTheFilesThatCameFirst) {
  const Observed job = plain_job(1000, 100'000);
  const std::uint64_t ram = 64 * k_mib;
  const auto layout = cache::layout_for(ram);
  // The data of a record begins on a page.
  const std::uint64_t a_segment = layout.segment_bytes / (25 * 4096 + 4096);
  const double fit = static_cast<double>(a_segment * layout.segment_count) / 1000;
  EXPECT_NEAR(later(job, {.ram = ram}).hit_ratio, fit, 0.03);
  EXPECT_EQ(later(job, {.ram = 256 * k_mib}).hit_ratio, 1);
}

TEST(Forecast, FileLargerThanASegmentTakesWholeSegments) {
  const std::uint64_t ram = 64 * k_mib;
  const auto layout = cache::layout_for(ram);
  const Observed job = plain_job(100, layout.segment_bytes + 1);
  EXPECT_NEAR(later(job, {.ram = ram}).hit_ratio, layout.segment_count / 2 / 100.0, 0.001);
}

TEST(Forecast, ListingsTakeASegment) {
  const std::uint64_t ram = 64 * k_mib;
  const auto layout = cache::layout_for(ram);
  Observed job = plain_job(100, layout.segment_bytes - 10'000);
  EXPECT_NEAR(later(job, {.ram = ram}).hit_ratio, layout.segment_count / 100.0, 0.001);
  job.lists = true;
  EXPECT_NEAR(later(job, {.ram = ram}).hit_ratio, (layout.segment_count - 1) / 100.0, 0.001);
}

TEST(Forecast, PartOfALargeFileThatEachEpochReadsIsWantedOnce) {
  Use use{.hash = 1, .size = 24 * k_mib, .opens = 2, .from_origin = 2, .origin_ms = 20};
  Observed job = observed_by({process({use}, true)});
  ASSERT_EQ(job.epochs, 2);
  // Each epoch has read the first 6 MiB, which are three chunks.
  job.files[0].counts[recorded::k_file_bytes] = 12 * k_mib;
  EXPECT_EQ(later(job, {.ram = 8 * k_mib}).hit_ratio, 1);
}

TEST(Forecast, TimeIsTheSumOfTheProgramAndItsMisses) {
  const Observed job = plain_job(1000, 100'000);
  const Forecast all = forecast(job, {.ram = 256 * k_mib}, defaults());
  EXPECT_NEAR(all.first.seconds.value_or(0), 3, 0.01);
  EXPECT_NEAR(all.later.seconds.value_or(0), 1, 0.01);
  EXPECT_TRUE(all.later.is_at_least) << "hits were not measured";
  EXPECT_FALSE(all.first.is_at_least);
  const Epoch part = later(job, {.ram = 64 * k_mib});
  EXPECT_NEAR(part.seconds.value_or(0), 1 + 2 * (1 - part.hit_ratio), 0.01);
  EXPECT_NEAR(later(job, {.ram = 64 * k_mib, .nodes = 4}).seconds.value_or(0),
              part.seconds.value_or(0) / 4, 0.01);
}

TEST(Forecast, PackCostsTheReadsAlone) {
  const Observed job = plain_job(1000, 100'000);
  const Forecast packed = forecast(job, {.ram = 8 * k_mib, .has_pack = true}, defaults());
  EXPECT_NEAR(packed.first.seconds.value_or(0), 2, 0.01);
}

TEST(Forecast, DiskAnswersOnlyIfItsHitsWereMeasured) {
  Observed job = plain_job(1000, 100'000);
  const Wish wish{.ram = 64 * k_mib, .disk = 200 * k_mib};
  EXPECT_EQ(later(job, wish).hit_ratio, 1);
  EXPECT_FALSE(later(job, wish).seconds);
  EXPECT_LT(later(job, {.ram = 64 * k_mib, .disk = 50 * k_mib}).hit_ratio, 0.9);
  job.tier_ns = 0.5 * k_ms;
  const double in_memory = later(job, {.ram = 64 * k_mib}).hit_ratio;
  // The ring takes some of the memory.
  EXPECT_NEAR(later(job, wish).seconds.value_or(0), 1 + 0.5 * (1 - in_memory), 0.1);
}

TEST(Forecast, DiskTakesTheMeasuredMeanForAFile) {
  std::vector<Use> uses;
  for (std::uint64_t i = 0; i < 1000; ++i)
    uses.push_back({.hash = i + 1,
                    .at_ms = 3 * i,
                    .size = 100'000,
                    .opens = 2,
                    .from_tier = 2,
                    .tier_ms = 4,
                    .until_ms = 3 * (1000 + i + 1)});
  const Observed job = observed_by({process(uses, true)});
  const Wish wish{.ram = 8 * k_mib, .disk = 200 * k_mib};
  const double seconds = later(job, wish).seconds.value_or(0);
  EXPECT_GT(seconds, 2.5) << "1 s besides, and 2 ms for most of 1000 files";
  EXPECT_LE(seconds, 3);
}

TEST(Forecast, MappingsNeedARunWithTheCache) {
  Use use{.hash = 1, .size = 10, .from_origin = 1, .maps = 1, .origin_ms = 1};
  EXPECT_FALSE(later(observed_by({process({use})}), {.ram = 8 * k_mib}).seconds);
  EXPECT_TRUE(later(observed_by({process({use}, true)}), {.ram = 8 * k_mib}).seconds);
}

TEST(Forecast, OpenSoonAfterAnotherIsAHitOnlyIfTheFileIsKept) {
  std::vector<Use> uses;
  for (std::uint64_t i = 0; i < 1000; ++i)
    uses.push_back({.hash = i + 1,
                    .at_ms = i,
                    .size = 100'000,
                    .opens = 2,
                    .soon = 1,
                    .from_origin = 1,
                    .origin_ms = 2});
  const Observed job = observed_by({process(uses, true)});
  EXPECT_EQ(job.epochs, 1);
  const Forecast found = forecast(job, {.ram = 64 * k_mib}, defaults());
  EXPECT_EQ(found.first.hit_ratio, 0.5);
  EXPECT_EQ(found.later.hit_ratio, later(plain_job(1000, 100'000), {.ram = 64 * k_mib}).hit_ratio)
      << "the kernel opens the others twice";
}

TEST(Forecast, FilesThatWereFetchedAheadAreHitsWithoutRoom) {
  std::vector<Use> uses;
  for (std::uint64_t i = 0; i < 1000; ++i)
    uses.push_back({.hash = i + 1, .at_ms = i, .size = 100'000, .memory_ms = 1});
  EXPECT_EQ(later(observed_by({process(uses, true)}), {.ram = 32 * k_mib}).hit_ratio, 1);
}

TEST(Forecast, PartOfTheMemoryPassesIfLargeFilesDoNotFit) {
  std::vector<Use> uses;
  for (std::uint64_t i = 0; i < 16; ++i)
    uses.push_back({.hash = i + 1,
                    .at_ms = i,
                    .size = 24 * k_mib,
                    .from_origin = 1,
                    .origin_ms = 20,
                    .read_ms = 20});
  const Observed job = observed_by({process(uses, true)});
  // 288 MiB have 69 segments of two places; 32 places are for chunks that pass: 106 of 192.
  EXPECT_NEAR(later(job, {.ram = 288 * k_mib}).hit_ratio, 0.55, 0.02);
  EXPECT_EQ(later(job, {.ram = 500 * k_mib}).hit_ratio, 1);
}

TEST(Forecast, LeastMemoryForAllHoldsAll) {
  const Observed job = plain_job(1000, 100'000);
  const std::uint64_t ram = ram_for_all(job, defaults());
  EXPECT_EQ(later(job, {.ram = ram}).hit_ratio, 1);
  EXPECT_LT(later(job, {.ram = ram - k_mib}).hit_ratio, 1);
  EXPECT_GT(disk_for_all(job), job.bytes);
}

}  // namespace
}  // namespace cube::cli
