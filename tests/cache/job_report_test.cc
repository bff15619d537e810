// The report, word for word.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>
#include <vector>

#include "cache/base/clock.h"
#include "cache/fill/cache_parts.h"
#include "cache/report/classic_report.h"
#include "cache/report/figures.h"
#include "cache/report/json_report.h"
#include "cache/report/notes.h"
#include "cache/report/progress.h"
#include "cache/report/text_report.h"
#include "cache/report/write_report.h"
#include "tests/support/attached_child.h"
#include "tests/support/child.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_region.h"

namespace cube::cache {
namespace {

using base::Counter;
using tests::TestRegion;

std::string content(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

JobTotals totals(std::initializer_list<std::pair<Counter, std::uint64_t>> counts) {
  JobTotals job;
  for (const auto& [counter, n] : counts)
    job.totals.counters[static_cast<std::size_t>(counter)] = n;
  return job;
}

TEST(JobReport, ClassicHasACycleLineAndASumLine) {
  const JobTotals job = totals({{Counter::hits_ram, 200}, {Counter::misses, 100}});
  EXPECT_EQ(report_as_classic(job, 100, 50).view(),
            "cubeshim: cycle request_count:200 hit_count:150 miss_count:50 hit_rate:75.00% "
            "miss_rate:25.00%\n"
            "cubeshim: sum request_count:300 hit_count:200 miss_count:100 hit_rate:66.67% "
            "miss_rate:33.33%\n"
            "cubeshim: served 300 of 300 opens under the prefixes\n");
}

TEST(JobReport, ClassicReportsUnservedOpens) {
  const JobTotals job = totals({{Counter::hits_ram, 1},
                                {Counter::bypassed_size, 2},
                                {Counter::bypassed_write, 3},
                                {Counter::bypassed_error, 4}});
  EXPECT_EQ(
      report_as_classic(job, 0, 0).view(),
      "cubeshim: cycle request_count:3 hit_count:1 miss_count:2 hit_rate:33.33% miss_rate:66.67%\n"
      "cubeshim: sum request_count:3 hit_count:1 miss_count:2 hit_rate:33.33% miss_rate:66.67%\n"
      "cubeshim: served 1 of 10 opens under the prefixes; not served: 2 of files larger than "
      "CUBESHIM_MAX_FILE (raise it, "
      "or see CUBESHIM_BLOCK), "
      "3 for writing, 4 that failed (no such file, no permission ...)\n");
}

TEST(JobReport, ClassicOfNothingHasNoNan) {
  const std::string zeros =
      "request_count:0 hit_count:0 miss_count:0 hit_rate:0.00% miss_rate:0.00%\n";
  const std::string none = "cubeshim: served 0 of 0 opens under the prefixes\n";
  EXPECT_EQ(report_as_classic({}, 0, 0).view(),
            "cubeshim: cycle " + zeros + "cubeshim: sum " + zeros + none);
  EXPECT_EQ(report_as_classic({}, 10, 10).view(),
            "cubeshim: cycle " + zeros + "cubeshim: sum " + zeros + none);
}

// The report as text for people.
TEST(JobReport, TextHasThreeLines) {
  JobTotals job = totals({{Counter::hits_ram, 6000},
                          {Counter::misses, 3000},
                          {Counter::prefetch_fetched, 2962},
                          {Counter::prefetch_early, 2962},
                          {Counter::bytes_served, 440 << 20},
                          {Counter::bypassed_write, 2},
                          {Counter::miss_ns, 6'300'000'000}});
  job.totals.miss_latency[base::Histogram::bucket_of(2'000'000)] = 3000;
  job.totals.hit_latency[base::Histogram::bucket_of(3000)] = 200;
  EXPECT_EQ(report_as_text(job).view(),
            "cubeshim: served: 9000 file opens, 440.0 MiB read or mapped: 6000 from memory (2962 "
            "of them fetched "
            "ahead), 3000 from the mount\n"
            "cubeshim: not served: 2 for writing\n"
            "cubeshim: time saved: 4.6 s to 10.2 s of waiting, all processes together: a file took "
            "1.8 ms from the mount and 2.8 us "
            "from the cache\n");
}

std::string line_of(const JobTotals& job, std::string_view begin) {
  const std::string text(report_as_text(job).view());
  const std::size_t at = text.find(begin);
  return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
}

TEST(JobReport, TextNamesEachPlaceThatServed) {
  const JobTotals job = totals({{Counter::hits_ram, 1},
                                {Counter::hits_disk, 2},
                                {Counter::hits_cluster, 3},
                                {Counter::misses, 4},
                                {Counter::large_opens, 5},
                                {Counter::bytes_served, 3 << 20},
                                {Counter::block_read, 2 << 20},
                                {Counter::block_mapped, 3 << 20}});
  EXPECT_EQ(line_of(job, "cubeshim: served"),
            "cubeshim: served: 15 file opens, 3.0 MiB read or mapped: 1 from memory, 2 from the "
            "disk, 3 from the "
            "cluster, 4 from the mount, "
            "5 of large files, which are read in parts");
}

TEST(JobReport, TextNamesTheObjectStore) {
  const auto lines = [](std::uint64_t opens_of_mounts, std::uint64_t misses_of_mounts) {
    JobTotals job = totals({{Counter::hits_ram, 100},
                            {Counter::misses, 40 + misses_of_mounts},
                            {Counter::bucket_misses, 40},
                            {Counter::bucket_gets, 41},
                            {Counter::bucket_bytes, 3 << 20},
                            {Counter::bucket_lists, 1},
                            {Counter::origin_opens, opens_of_mounts},
                            {Counter::locked, 1},
                            {Counter::miss_ns, 1}});
    job.totals.miss_latency[base::Histogram::bucket_of(2'000'000)] = 40;
    return std::string(report_as_text(job).view());
  };
  const std::string requests = "cubeshim: object store: 41 GETs brought 3.0 MiB; 1 LIST\n";
  const std::string time =
      "cubeshim: time saved: 73.4 ms to 255 ms of waiting, all processes together: ";
  EXPECT_EQ(lines(0, 0),
            "cubeshim: served: 140 file opens, 0 bytes read or mapped: 100 from memory, 40 from "
            "the object store\n"
            "cubeshim: not served: nothing; 1 locked, so it was opened at the object store, too\n" +
                time + "a file took 1.8 ms from the object store\n" + requests);
  EXPECT_EQ(lines(2, 2),
            "cubeshim: served: 142 file opens, 0 bytes read or mapped: 100 from memory, 2 from the "
            "mount, 40 from "
            "the object store\n"
            "cubeshim: not served: nothing; 1 locked, so it was opened at the origin, too\n" +
                time + "a file took 1.8 ms from the origin\n" + requests);
  // A pack counts no opens.
  EXPECT_NE(lines(0, 2).find("a file took 1.8 ms from the origin\n"), std::string::npos);
}

TEST(JobReport, TextNamesTheObjectStoreOfAJobThatOpensNoFile) {
  const JobTotals job = totals({{Counter::metadata_stats, 9}, {Counter::bucket_lists, 2}});
  EXPECT_EQ(report_as_text(job).view(),
            "cubeshim: served: no file opens; 9 metadata calls: 0 listings, 9 stats, 0 "
            "negative entries\n"
            "cubeshim: object store: 0 GETs brought 0 bytes; 2 LISTs\n");
}

TEST(JobReport, TextOfLargeFilesNamesTheOrigin) {
  const std::string begin = "cubeshim: large files: ";
  JobTotals job = totals({{Counter::large_opens, 2},
                          {Counter::block_misses, 1},
                          {Counter::block_origin, 20 << 20},
                          {Counter::bucket_gets, 10}});
  const std::string read = begin + "0 bytes in 1 read, 0.0 % of them without a wait; ";
  EXPECT_EQ(line_of(job, begin), read + "cubeshim fetched 20.0 MiB from the object store");
  job.totals.counters[static_cast<std::size_t>(Counter::origin_opens)] = 1;
  EXPECT_EQ(line_of(job, begin), read + "cubeshim fetched 20.0 MiB from the origin");
}

TEST(JobReport, BytesHaveTheUnitThatFits) {
  const auto text_of = [](std::uint64_t bytes) {
    ReportText text;
    append_bytes(text, bytes);
    return std::string(text.view());
  };
  EXPECT_EQ(text_of(0), "0 bytes");
  EXPECT_EQ(text_of(1), "1 byte");
  EXPECT_EQ(text_of(1023), "1023 bytes");
  EXPECT_EQ(text_of(1024), "1.0 KiB");
  EXPECT_EQ(text_of((1 << 20) - 1), "1.0 MiB");
  EXPECT_EQ(text_of(1500 << 20), "1.5 GiB");
  EXPECT_EQ(text_of(UINT64_C(5000) << 40), "5000.0 TiB");
}

TEST(JobReport, TimesHaveTheUnitThatFits) {
  const auto text_of = [](double ns) {
    ReportText text;
    append_time(text, ns);
    return std::string(text.view());
  };
  EXPECT_EQ(text_of(0), "0.0 us");
  EXPECT_EQ(text_of(999e3), "999 us");
  EXPECT_EQ(text_of(2.04e6), "2.0 ms");
  EXPECT_EQ(text_of(119e9), "119 s");
  EXPECT_EQ(text_of(150e9), "2.5 min");
  EXPECT_EQ(text_of(3600e9 * 300), "300 h");
}

TEST(JobReport, TimeSavedIsReportedOnlyIfItWasMeasured) {
  const std::string begin = "cubeshim: time saved: ";
  JobTotals job = totals({{Counter::large_opens, 1}});
  EXPECT_EQ(line_of(job, begin),
            begin + "not known, only files that are cached as a whole are timed");
  job = totals({{Counter::misses, 9}, {Counter::miss_ns, 9'000'000}});
  job.totals.miss_latency[base::Histogram::bucket_of(1'000'000)] = 9;
  EXPECT_EQ(line_of(job, begin), begin + "none, no file was in the cache when it was opened");
  job = totals({{Counter::hits_ram, 100}});
  EXPECT_EQ(line_of(job, begin),
            begin + "not known, no file was fetched from the mount at its open");
  job = totals({{Counter::hits_ram, 1000}, {Counter::misses, 31}, {Counter::miss_ns, 40'000'000}});
  job.totals.miss_latency[base::Histogram::bucket_of(1'000'000)] = 31;
  EXPECT_EQ(line_of(job, begin),
            begin + "not known, only 31 files were fetched from the mount at their open");
  job.totals.miss_latency[base::Histogram::bucket_of(1'000'000)] = 32;
  EXPECT_EQ(line_of(job, begin).substr(0, begin.size() + 6), begin + "up to ");
  job.totals.miss_latency[base::Histogram::bucket_of(1'000'000)] = 1;
  EXPECT_EQ(line_of(job, begin),
            begin + "not known, only 1 file was fetched from the mount at its open");
}

TEST(JobReport, TimeSavedIsARangeFromUndisturbedFetches) {
  const std::string begin = "cubeshim: time saved: ";
  // Three of ten fetches ran alone. The others waited behind a prefetch, and so did some hits.
  JobTotals job = totals({{Counter::hits_ram, 1000},
                          {Counter::misses, 100},
                          {Counter::miss_ns, 420'000'000},
                          {Counter::prefetch_early, 600}});
  const auto set = [&](Counter counter, std::uint64_t n) {
    job.totals.counters[static_cast<std::size_t>(counter)] = n;
  };
  job.totals.miss_latency[base::Histogram::bucket_of(1'000'000)] = 30;
  job.totals.miss_latency[base::Histogram::bucket_of(5'500'000)] = 70;
  set(Counter::slow_hit_ns, 100'000'000);
  // 700 and 1,100 fetches of 0.92 ms, minus 520 ms of waiting.
  const std::string times =
      " of waiting, all processes together: a file took 918 us from the mount and 100 us from the "
      "cache";
  EXPECT_EQ(line_of(job, begin), begin + "122 ms to 489 ms" + times);
  set(Counter::prefetch_early, 1000);
  EXPECT_EQ(line_of(job, begin), begin + "about 489 ms" + times);
  // All files were read before, so the kernel might have kept them.
  set(Counter::prefetch_early, 0);
  EXPECT_EQ(line_of(job, begin), begin + "up to 489 ms" + times);
  set(Counter::slow_hit_ns, 3'000'000'000);
  EXPECT_EQ(
      line_of(job, begin),
      begin + "none to speak of: a file took 918 us from the mount and 3.0 ms from the cache");
}

// A bucket is up to a quarter as wide as the times in it.
TEST(JobReport, TimeSavedIsNoMoreThanTheFetchesTook) {
  for (std::uint64_t took = 200'000; took < 50'000'000; took += took / 40) {
    JobTotals job =
        totals({{Counter::hits_ram, 300}, {Counter::misses, 100}, {Counter::miss_ns, 100 * took}});
    job.totals.miss_latency[base::Histogram::bucket_of(took)] = 100;
    const auto saved = job.saved();
    ASSERT_TRUE(saved);
    EXPECT_LE(saved->most_ns, 300.0 * static_cast<double>(took)) << took;
    EXPECT_GE(saved->most_ns, 200.0 * static_cast<double>(took)) << took;
  }
}

TEST(JobReport, NoTimeIsSavedByHitsThatStillOpenedTheOrigin) {
  JobTotals job = totals({{Counter::hits_ram, 300},
                          {Counter::misses, 100},
                          {Counter::miss_ns, 100 * 4'000'000},
                          {Counter::locked, 180},
                          {Counter::materialized, 100}});
  job.totals.miss_latency[base::Histogram::bucket_of(4'000'000)] = 100;
  const auto saved = job.saved();
  ASSERT_TRUE(saved);
  EXPECT_LE(saved->most_ns, 20.0 * 4'000'000);
  EXPECT_EQ(line_of(job, "cubeshim: not served"),
            "cubeshim: not served: nothing; served first, then handed to the kernel: 100; 180 "
            "locked, so they were opened at the mount, too");
}

TEST(JobReport, NoTimeIsSavedAtALocalDisk) {
  JobTotals job =
      totals({{Counter::hits_ram, 3000}, {Counter::misses, 50}, {Counter::miss_ns, 2'000'000}});
  job.totals.miss_latency[base::Histogram::bucket_of(40'000)] = 50;
  job.totals.hit_latency[base::Histogram::bucket_of(300)] = 90;
  EXPECT_EQ(line_of(job, "cubeshim: time saved"),
            "cubeshim: time saved: none to speak of: a file took 32.8 us from the mount and 0.3 us "
            "from the cache");
}

TEST(JobReport, TextHasAnExtraLineForProblems) {
  JobTotals job = totals(
      {{Counter::hits_ram, 1}, {Counter::prefetch_fetched, 100}, {Counter::prefetch_wasted, 9}});
  job.tiers[0] = {.capacity = 44, .used = 33, .entries = 22, .unwritten = 0, .is_there = true};
  const auto set = [&](Counter counter, std::uint64_t n) {
    job.totals.counters[static_cast<std::size_t>(counter)] = n;
  };
  set(Counter::cluster_gets, 1000);
  set(Counter::cluster_late, 9);
  set(Counter::metadata_stats, 7);
  const std::string text(report_as_text(job).view());
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3) << text;
  set(Counter::prefetch_wasted, 10);
  EXPECT_EQ(line_of(job, "cubeshim: fetched"),
            "cubeshim: fetched ahead in vain: 10 of 100 files, dropped before they were opened "
            "(cubeshim docs prefetch)");
  job.tiers[0].unwritten = 11;
  EXPECT_EQ(line_of(job, "cubeshim: disk"), "cubeshim: disk: 11 files are not written there yet");
  set(Counter::cluster_late, 10);
  EXPECT_EQ(line_of(job, "cubeshim: cluster"),
            "cubeshim: cluster: 10 of 1000 requests had no answer in time (cubeshim docs cluster)");
  set(Counter::cluster_late, 0);
  set(Counter::cluster_refused, 3);
  set(Counter::cluster_damaged, 2);
  EXPECT_EQ(
      line_of(job, "cubeshim: cluster"),
      "cubeshim: cluster: 0 of 1000 requests had no answer in time; the servers refused 3 files "
      "(full, or too large for them); 2 of their records were damaged (cubeshim docs cluster)");
}

TEST(JobReport, TextNamesTheRemedyForLargeFilesThatAreOpenedOverAndOver) {
  const std::string remedy =
      "; each of their 300 opens asked the mount, unless CUBESHIM_MAX_FILE is raised to their size";
  const auto line = [](std::uint64_t opens, std::uint64_t mapped, std::uint64_t gets = 0) {
    return line_of(totals({{Counter::large_opens, opens},
                           {Counter::block_mapped, mapped},
                           {Counter::block_origin, mapped},
                           {Counter::bucket_gets, gets}}),
                   "cubeshim: large files");
  };
  EXPECT_EQ(line(300, 64 << 20),
            "cubeshim: large files: no reads seen (those by sendfile, splice, exec or "
            "io_uring are not counted); mappings showed 64.0 MiB of memory; cubeshim fetched 64.0 "
            "MiB from the mount" +
                remedy);
  EXPECT_EQ(line(99, 64 << 20).find("; each of"), std::string::npos);
  EXPECT_EQ(line(300, 300ULL << 20).find("; each of"), std::string::npos) << "whole shards";
  EXPECT_EQ(line(300, 64 << 20, 64).find("; each of"), std::string::npos) << "of a bucket";
}

TEST(JobReport, TextOfLargeFilesReportsWastedBytes) {
  JobTotals job = totals({{Counter::large_opens, 2},
                          {Counter::block_hits, 19},
                          {Counter::block_misses, 1},
                          {Counter::block_read, 40 << 20},
                          {Counter::block_origin, 20 << 20},
                          {Counter::block_disk, 4 << 20},
                          {Counter::block_ahead, 20 << 20},
                          {Counter::block_wasted, 1 << 20}});
  const std::string begin = "cubeshim: large files: ";
  EXPECT_EQ(line_of(job, begin), begin +
                                     "40.0 MiB in 20 reads, 95.0 % of them without a wait; "
                                     "cubeshim fetched 20.0 MiB from the mount, 4.0 MiB from "
                                     "the disk");
  JobTotals mapped = totals({{Counter::large_opens, 2}, {Counter::block_mapped, 7 << 20}});
  const std::string shown = begin +
                            "no reads seen (those by sendfile, splice, exec or io_uring are "
                            "not counted); mappings showed 7.0 MiB of memory";
  EXPECT_EQ(line_of(mapped, begin), shown + "; cubeshim fetched 0 bytes from the mount");
  // The kernel serves a part of these mappings.
  mapped.totals.counters[static_cast<std::size_t>(Counter::block_mappings)] = 3;
  mapped.totals.counters[static_cast<std::size_t>(Counter::block_watched)] = 2;
  EXPECT_EQ(line_of(mapped, begin),
            shown + "; what the kernel read for 1 of 3 mappings is not counted");
  // "At least" covers the mapping that was not watched.
  mapped.totals.counters[static_cast<std::size_t>(Counter::block_faulted)] = 5 << 20;
  EXPECT_EQ(line_of(mapped, begin), shown + "; the kernel read at least 5.0 MiB more for mappings");
  job.totals.counters[static_cast<std::size_t>(Counter::block_wasted)] = 2 << 20;
  job.totals.counters[static_cast<std::size_t>(Counter::block_kernel)] = 10 << 20;
  EXPECT_EQ(line_of(job, begin), begin +
                                     "50.0 MiB in 20 reads, 95.0 % of them without a wait; "
                                     "cubeshim fetched 20.0 MiB from the mount, 4.0 MiB from "
                                     "the disk; 2.0 MiB "
                                     "were fetched ahead in vain; 10.0 MiB left to the kernel "
                                     "(memory full: raise CUBESHIM_RAM; or changed while open)");
}

TEST(JobReport, TextOfAJobThatOpensNoFileIsOneLine) {
  JobTotals job;
  const std::string prefixes[] = {"/mnt/a", "/mnt/b"};
  const std::string begin = "cubeshim: served: nothing; ";
  EXPECT_EQ(report_as_text(job, prefixes).view(),
            begin +
                "no file below /mnt/a, /mnt/b was opened (is that how the program spells it? "
                "`cubeshim doctor` checks the prefixes)\n");
  std::strcpy(job.misspelled, "/other/f");
  EXPECT_EQ(report_as_text(job, prefixes).view(),
            begin +
                "not seen: /other/f lies below a prefix but was opened by another name (add that "
                "name of the directory to "
                "CUBESHIM_PREFIXES)\n");
  job.totals.counters[static_cast<std::size_t>(Counter::metadata_listed)] = 41;
  job.totals.counters[static_cast<std::size_t>(Counter::metadata_negative)] = 60;
  EXPECT_EQ(report_as_text(job, prefixes).view(),
            "cubeshim: served: no file opens; 101 metadata calls: 41 listings, 0 stats, 60 "
            "negative entries\n");
}

TEST(JobReport, TextNamesTheCallsThatMaterializedFiles) {
  const TestRegion region;
  for (const char* call : {"flock", "flock", "fork"})
    count_materialized(*region, region->own_job(), call);
  JobTotals job = collect(*region, region->own_job());
  job.totals.counters[static_cast<std::size_t>(Counter::hits_ram)] = 9;
  job.totals.counters[static_cast<std::size_t>(Counter::materialized)] = 4;
  EXPECT_EQ(line_of(job, "cubeshim: not served"),
            "cubeshim: not served: nothing; served first, then handed to the kernel: 4 (for flock "
            "2, fork 1, others 1)");
  std::strcpy(job.misspelled, "/other/f");
  EXPECT_NE(line_of(job, "cubeshim: not served").find("; not seen: /other/f lies below a prefix"),
            std::string::npos);
}

TEST(JobReport, ClassicReportsMetadataAnsweredFromMemory) {
  JobTotals job;
  const std::string prefixes[] = {"/mnt/data"};
  EXPECT_NE(
      std::string(report_as_classic(job, 0, 0, prefixes).view()).find("no file below /mnt/data"),
      std::string::npos);
  job.totals.counters[static_cast<std::size_t>(Counter::metadata_listed)] = 41;
  job.totals.counters[static_cast<std::size_t>(Counter::metadata_stats)] = 4000;
  job.totals.counters[static_cast<std::size_t>(Counter::metadata_negative)] = 60;
  job.totals.counters[static_cast<std::size_t>(Counter::metadata_read)] = 42;
  job.totals.counters[static_cast<std::size_t>(Counter::metadata_gathered)] = 4040;
  job.totals.counters[static_cast<std::size_t>(Counter::metadata_revalidations)] = 3;
  const std::string text(report_as_classic(job, 0, 0, prefixes).view());
  EXPECT_NE(text.find("cubeshim: names: 4101 looks answered from memory (41 listings, 4000 stats, "
                      "60 absent); the origin was asked for "
                      "42 listings, 4040 stats ahead and 3 looks at directories\n"),
            std::string::npos)
      << text;
  EXPECT_EQ(text.find("no file below"), std::string::npos) << text;
}

TEST(JobReport, ClassicNamesTheCallsThatMaterializedFiles) {
  const TestRegion region;
  JobTotals job = collect(*region, region->own_job());
  for (const char* call : {"flock", "copy_file_range_and_more", "flock", "fork"})
    count_materialized(*region, region->own_job(), call);
  job = collect(*region, region->own_job());
  job.totals.counters[static_cast<std::size_t>(Counter::hits_ram)] = 9;
  job.totals.counters[static_cast<std::size_t>(Counter::materialized)] = 6;
  job.totals.counters[static_cast<std::size_t>(Counter::bypassed_full)] = 1;
  const std::string served =
      "cubeshim: served 9 of 10 opens under the prefixes; not served: 1 while the ";
  const std::string taken =
      "; served, then handed to the kernel: 6 (for flock 2, copy_file_range_ 1, fork 1, others "
      "2)\n";
  std::string text(report_as_classic(job, 0, 0).view());
  EXPECT_TRUE(text.ends_with(served + "memory was full (raise CUBESHIM_RAM)" + taken)) << text;
  job.is_index_full = true;
  text = report_as_classic(job, 0, 0).view();
  EXPECT_TRUE(
      text.ends_with(served + "index was full: very many small files (raise CUBESHIM_RAM)" + taken))
      << text;
  // There is room for a few names. The remaining calls are shown as a number.
  for (char call = 'a'; call < 'm'; ++call)
    count_materialized(*region, region->own_job(), std::string(1, call).c_str());
  EXPECT_EQ(
      std::string(collect(*region, region->own_job()).materialized_by[k_call_counts - 1].name),
      "c");
}

TEST(JobReport, LargeFilesHaveALineIfThereAreSome) {
  JobTotals job = totals({{Counter::hits_ram, 1},
                          {Counter::large_opens, 2},
                          {Counter::block_hits, 19},
                          {Counter::block_misses, 1},
                          {Counter::block_read, 40 << 20},
                          {Counter::block_origin, 20 << 20},
                          {Counter::block_ahead, 18 << 20}});
  const std::string begin = "cubeshim: large files: ";
  const auto line = [&] {
    const std::string text(report_as_classic(job, 0, 0).view());
    const std::size_t at = text.find(begin);
    return at == std::string::npos
               ? ""
               : text.substr(at + begin.size(), text.find('\n', at) - at - begin.size());
  };
  EXPECT_EQ(line(),
            "40.0 MiB in 20 reads, 95.0 % of them without a wait; 20.0 MiB from the origin, 18.0 "
            "of them ahead");
  job.chunk_unread = 3 << 20;
  const auto set = [&](Counter counter, std::uint64_t n) {
    job.totals.counters[static_cast<std::size_t>(counter)] = n;
  };
  set(Counter::block_wasted, 1 << 19);
  set(Counter::block_kernel, 10 << 20);
  set(Counter::block_mapped, 7 << 20);
  EXPECT_EQ(line(),
            "50.0 MiB in 20 reads, 95.0 % of them without a wait; mappings showed 7.0 MiB of "
            "memory; 20.0 MiB from the origin, "
            "18.0 of them ahead (3.0 not read yet, 0.5 wasted); 10.0 MiB left to the kernel "
            "(memory full: raise CUBESHIM_RAM; or "
            "changed "
            "while open)");
  set(Counter::large_opens, 0);
  EXPECT_EQ(line(), "");
}

TEST(JobReport, TextNamesTheFirstFileOfEachReason) {
  TestRegion region;
  const CacheParts parts(*region, tests::config_for(region.options));
  parts.count_unserved(Counter::bypassed_write, "/mnt/a\x1b[1m");
  parts.count_unserved(Counter::bypassed_write, "/mnt/b");
  const std::string longest = "/mnt/" + std::string(200, 'c') + "/end";
  parts.count_unserved(Counter::bypassed_size, longest);
  EXPECT_EQ(std::string(report_as_text(collect(*region, region->own_job())).view())
                .substr(std::strlen("cubeshim: served: 0 file opens, 0 bytes read or mapped\n")),
            "cubeshim: not served: 1 of files larger than CUBESHIM_MAX_FILE (raise it, or see "
            "CUBESHIM_BLOCK): ..." +
                longest.substr(longest.size() - 120) +
                "; 2 for writing, first /mnt/a?[1m\n"
                "cubeshim: time saved: none, no file was in the cache when it was opened\n");
}

TEST(UnservedPaths, RowOfTwoJobsBelongsToTheNewerOne) {
  TestRegion region;
  constexpr std::uint32_t k_older = 1, k_newer = 2;
  region->job_row(k_older).last_used = 20;
  region->job_row(k_newer).last_used = 20 + k_unserved_rows;
  note_unserved(*region, k_older, 0, "/mnt/old");
  EXPECT_NE(unserved_of(*region, k_older), nullptr);
  EXPECT_EQ(unserved_of(*region, k_newer), nullptr);
  note_unserved(*region, k_newer, 1, "/mnt/new");
  const UnservedRow* const row = unserved_of(*region, k_newer);
  ASSERT_NE(row, nullptr);
  EXPECT_EQ(row->first[0].state.load(), 0U) << "the path of the older job is gone";
  EXPECT_NE(row->first[1].state.load(), 0U);
  EXPECT_EQ(unserved_of(*region, k_older), nullptr);
  note_unserved(*region, k_older, 0, "/mnt/old");
  EXPECT_EQ(unserved_of(*region, k_newer), row) << "the older job leaves it alone";
  EXPECT_EQ(row->first[0].state.load(), 0U);
}

TEST(JobReport, ProgressCoversTheIntervalAndNamesTheBottleneck) {
  constexpr std::uint64_t k_minute = 60'000;
  JobTotals before = totals({{Counter::hits_ram, 1000}, {Counter::misses, 500}});
  before.milliseconds = k_minute;
  JobTotals now = totals(
      {{Counter::hits_ram, 1600}, {Counter::misses, 900}, {Counter::miss_ns, 31'000'000'000}});
  now.milliseconds = 2 * k_minute;
  now.ram_capacity = 12ULL << 30;
  now.ram_used = 3ULL << 30;
  now.totals.miss_latency[base::Histogram::bucket_of(2'200'000)] = 400;
  EXPECT_EQ(progress_text(before, now).view(),
            "cubeshim: 2.0 min: 1000 opens, 60 % from the cache; 3.0 GiB cached (25 % of the "
            "room); mount 2.1 ms a file; waited 31.0 s for it (nothing announces which files come "
            "next)\n");
  const auto set = [&](Counter counter, std::uint64_t n) {
    now.totals.counters[static_cast<std::size_t>(counter)] = n;
  };
  set(Counter::prefetch_fetched, 90);
  EXPECT_TRUE(progress_text(before, now).view().ends_with("; waited 31.0 s for it\n"));
  set(Counter::miss_ns, 1'000'000'000);
  EXPECT_TRUE(progress_text(before, now).view().ends_with("; mount 2.1 ms a file\n"));
  // The memory is full, and almost nothing is fetched any more.
  set(Counter::prefetch_fetched, 0);
  set(Counter::misses, 501);
  set(Counter::bypassed_full, 400);
  EXPECT_TRUE(progress_text(before, now)
                  .view()
                  .ends_with("; 400 not served: while the memory was full (raise CUBESHIM_RAM); "
                             "almost nothing new is cached: this is the last line\n"));
}

TEST(JobReport, ProgressEndsOnceLittleMoreIsCached) {
  TestRegion region;
  std::string why;
  constexpr std::uint64_t k_second = 1'000'000'000;
  Progress progress(10 * k_second);
  const std::uint32_t job = region->own_job();
  EXPECT_EQ(progress.look(*region, job, k_second).size, 0U) << "the first interval has only begun";
  region->stats().count(Counter::misses);
  EXPECT_EQ(progress.look(*region, job, 5 * k_second).size, 0U);
  EXPECT_NE(progress.look(*region, job, 11 * k_second).size, 0U);
  EXPECT_EQ(progress.look(*region, job, 21 * k_second).size, 0U) << "nothing was opened";
  region->stats().count(Counter::hits_ram);
  EXPECT_TRUE(progress.look(*region, job, 31 * k_second).view().ends_with("the last line\n"));
  region->stats().count(Counter::hits_ram);
  EXPECT_EQ(progress.look(*region, job, 41 * k_second).size, 0U);
}

TEST(JobReport, ADiskHasALineIfThereIsOne) {
  JobTotals job = totals({{Counter::hits_ram, 1}, {Counter::hits_disk, 2}, {Counter::misses, 1}});
  EXPECT_EQ(report_as_classic(job, 0, 0).view().find(R"("disk":{)"), std::string_view::npos);
  EXPECT_EQ(report_as_json(job).view().find(R"("disk":{)"), std::string_view::npos);
  job.tiers[0] = {.capacity = 44, .used = 33, .entries = 22, .unwritten = 11, .is_there = true};
  EXPECT_EQ(
      report_as_classic(job, 0, 0).view(),
      "cubeshim: cycle request_count:4 hit_count:3 miss_count:1 hit_rate:75.00% miss_rate:25.00%\n"
      "cubeshim: sum request_count:4 hit_count:3 miss_count:1 hit_rate:75.00% miss_rate:25.00%\n"
      "cubeshim: disk hit_count:2 capacity:44 used:33 entries:22 unwritten:11\n"
      "cubeshim: served 4 of 4 opens under the prefixes\n");
  const auto json = nlohmann::json::parse(std::string(report_as_json(job).view()), nullptr, false);
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json["hits"], nlohmann::json({{"ram", 1}, {"disk", 2}}));
  EXPECT_EQ(json["disk"],
            nlohmann::json({{"capacity", 44}, {"used", 33}, {"entries", 22}, {"unwritten", 11}}));
}

// With CUBESHIM_CLUSTER_FILL=0, no process asks the servers how full they are.
TEST(JobReport, JsonHasNoFigureOfTheClusterThatNobodyMeasures) {
  const auto names = [](const JobTotals& job) {
    std::string all;
    const auto json =
        nlohmann::json::parse(std::string(report_as_json(job).view()), nullptr, false);
    for (const auto& [name, value] : json["cluster"].items()) all += name + " ";
    return all;
  };
  JobTotals job;
  job.tiers[1] = {.is_there = true};
  EXPECT_EQ(names(job),
            "damaged gets hits late misses offered outdated refused skipped trips waits ");
  job.tiers[1].capacity = 8;
  EXPECT_EQ(names(job),
            "capacity damaged entries gets hits late misses offered outdated refused skipped trips "
            "used waits ");
}

TEST(JobReport, JsonIsTheSameToTheByte) {
  JobTotals job;
  job.totals.hit_latency[base::Histogram::bucket_of(2000)] = 10;
  EXPECT_EQ(
      report_as_json(job).view(),
      R"({"milliseconds":0,"opens":0,"hits":{"ram":0},"misses":0,"bypassed":{"size":0,"full":0,)"
      R"("links":0,"write":0,"flags":0,"kind":0,"busy":0,"error":0},"hit_rate":0,"bytes_served":0,)"
      R"("origin":{"opens":0,"reads":0,"bytes":0,"stats":0},)"
      R"("bucket":{"gets":0,"bytes":0,"lists":0,"misses":0},"stat_hits":0,)"
      R"("metadata":{"listings":0,"stats":0,"negative":0,"read":0,"stored":0,"revalidations":0,)"
      R"("gathered":0},"calls_saved":0,"materialized":0,"locked":0,"stale_marked":0,)"
      R"("prefetch":{"fetched":0,)"
      R"("early":0,"late":0,"wasted":0,"duplicate":0,"unread":0},"blocks":{"files":0,"hits":0,)"
      R"("misses":0,"read":0,"kernel":0,"origin":0,"disk":0,"cluster":0,"ahead":0,"used":0,)"
      R"("wasted":0,"unread":0,"memory":0,"mapped":0,"kept":0,"faulted":0,"mappings":0,)"
      R"("watched":0},"ram":{"capacity":0,"used":0,"entries":0},"time_ns":{"misses":0,)"
      R"("slow_hits":0,"hits":0},"latency_us":{"hit":{"p50":2.048,"p99":2.048},)"
      R"("miss":{"p50":0.000,"p99":0.000}}})"
      "\n");
}

// If two fields have the same name, nlohmann keeps only the last one.
TEST(JobReport, JsonHasExactlyTheFiguresOfTheTable) {
  JobTotals job;
  for (auto& tier : job.tiers) tier.capacity = 1;
  for (std::size_t i = 0; i < base::k_counters; ++i) job.totals.counters[i] = 1'000'000 + i;
  const auto json =
      nlohmann::json::parse(std::string(report_as_json(job).view()), nullptr, false).flatten();
  EXPECT_EQ(json.size(), figures().size());
  for (const Figure& figure : figures()) {
    std::string path = "/" + std::string(figure.group);
    std::replace(path.begin(), path.end(), '.', '/');
    path += (figure.group.empty() ? "" : "/") + std::string(figure.name);
    ASSERT_TRUE(json.contains(path)) << path;
    EXPECT_NEAR(json[path].get<double>(), figure.real_of(job), 0.001) << path;
  }
}

TEST(JobReport, JsonOfTheLargestNumbersFits) {
  JobTotals job;
  for (auto& counter : job.totals.counters) counter = UINT64_MAX / 64;
  for (auto& tier : job.tiers) tier = {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, true};
  job.ram_capacity = job.ram_used = job.ram_entries = job.unread = job.chunk_bytes =
      job.chunk_unread = UINT64_MAX;
  const std::string text(report_as_json(job).view());
  EXPECT_TRUE(nlohmann::json::parse(text, nullptr, false).is_object()) << text;
}

TEST(JobReport, JsonIsOneObjectWithTheFieldsOfTheContract) {
  JobTotals job;
  for (std::size_t i = 0; i < base::k_counters; ++i) job.totals.counters[i] = 1000 + i;
  job.totals.hit_latency[base::Histogram::bucket_of(2000)] = 10;
  job.totals.miss_latency[base::Histogram::bucket_of(2'000'000)] = 10;
  job.ram_capacity = 77;
  job.ram_used = 66;
  job.ram_entries = 55;
  const std::string text(report_as_json(job).view());
  EXPECT_TRUE(text.ends_with("}\n"));
  EXPECT_EQ(text.find('\n'), text.size() - 1);
  const auto json = nlohmann::json::parse(text, nullptr, false);
  ASSERT_TRUE(json.is_object());
  const auto n = [&](Counter counter) { return job.totals[counter]; };
  EXPECT_EQ(json["opens"], n(Counter::hits_ram) + n(Counter::hits_disk) + n(Counter::hits_cluster) +
                               n(Counter::misses) + n(Counter::bypassed_flags) +
                               n(Counter::bypassed_write) + n(Counter::bypassed_kind) +
                               n(Counter::bypassed_size) + n(Counter::bypassed_full) +
                               n(Counter::bypassed_names) + n(Counter::bypassed_busy) +
                               n(Counter::bypassed_error) + n(Counter::large_opens));
  EXPECT_EQ(json["blocks"]["files"], n(Counter::large_opens));
  EXPECT_EQ(json["hits"]["ram"], n(Counter::hits_ram));
  EXPECT_EQ(json["misses"], n(Counter::misses));
  EXPECT_EQ(json["bypassed"].size(), 8U);
  EXPECT_EQ(json["bypassed"]["flags"], n(Counter::bypassed_flags));
  EXPECT_EQ(json["bypassed"]["write"], n(Counter::bypassed_write));
  EXPECT_EQ(json["bypassed"]["kind"], n(Counter::bypassed_kind));
  EXPECT_EQ(json["bypassed"]["size"], n(Counter::bypassed_size));
  EXPECT_EQ(json["bypassed"]["full"], n(Counter::bypassed_full));
  EXPECT_EQ(json["bypassed"]["links"], n(Counter::bypassed_names));
  EXPECT_EQ(json["bypassed"]["busy"], n(Counter::bypassed_busy));
  EXPECT_EQ(json["bypassed"]["error"], n(Counter::bypassed_error));
  EXPECT_NEAR(json["hit_rate"].get<double>(),
              static_cast<double>(job.hits()) / static_cast<double>(job.requests()), 1e-6);
  EXPECT_EQ(json["bytes_served"], n(Counter::bytes_served));
  EXPECT_EQ(json["origin"]["opens"], n(Counter::origin_opens));
  EXPECT_EQ(json["origin"]["reads"], n(Counter::origin_reads));
  EXPECT_EQ(json["origin"]["bytes"], n(Counter::origin_bytes));
  EXPECT_EQ(json["origin"]["stats"], n(Counter::origin_stats));
  EXPECT_EQ(json["calls_saved"], n(Counter::calls_saved));
  EXPECT_EQ(json["ram"]["capacity"], 77);
  EXPECT_EQ(json["ram"]["used"], 66);
  EXPECT_EQ(json["ram"]["entries"], 55);
  EXPECT_NEAR(json["latency_us"]["hit"]["p50"].get<double>(), 2.0, 0.6);
  EXPECT_NEAR(json["latency_us"]["miss"]["p99"].get<double>(), 2000.0, 600.0);
}

TEST(JobReport, GoesToItsFileWithThePidInItsName) {
  const TestRegion region;
  const tests::TempDir dir;
  base::Config config = tests::config_for(region.options);
  config.stats = dir / "%p-100%-%p%.txt";
  region->stats().count(Counter::hits_ram, 3);
  write_report(*region, region->own_job(), config, 4711);
  EXPECT_EQ(content(dir / "4711-100%-4711%.txt"),
            "cubeshim: served: 3 file opens, 0 bytes read or mapped: 3 from memory\n"
            "cubeshim: not served: nothing\n"
            "cubeshim: time saved: not known, no file was fetched from the mount at its open\n");
}

TEST(JobReport, CycleCoversTheTimeSinceTheLastReport) {
  const TestRegion region;
  const tests::TempDir dir;
  base::Config config = tests::config_for(region.options);
  config.stats = dir / "report";
  config.stats_format = base::StatsFormat::classic;
  for (int i = 0; i < 2; ++i) {
    region->stats().count(Counter::hits_ram, 3);
    write_report(*region, region->own_job(), config, 1);
  }
  const std::string text = content(config.stats);
  EXPECT_NE(
      text.find("cycle request_count:3 hit_count:3 miss_count:0 hit_rate:100.00% miss_rate:0.00%\n"
                "cubeshim: sum request_count:6 "),
      std::string::npos)
      << text;
}

TEST(JobReport, IsAppendedAsJsonLines) {
  const TestRegion region;
  const tests::TempDir dir;
  base::Config config = tests::config_for(region.options);
  config.stats = dir / "report";
  config.stats_format = base::StatsFormat::json;
  for (int i = 0; i < 3; ++i) write_report(*region, region->own_job(), config, 1);
  std::ifstream file(config.stats);
  int lines = 0;
  for (std::string line; std::getline(file, line); ++lines) {
    EXPECT_TRUE(nlohmann::json::parse(line, nullptr, false).is_object());
  }
  EXPECT_EQ(lines, 3);
}

TEST(JobReport, NothingIsWrittenIfOffAndToStderrWithoutOpens) {
  const TestRegion region;
  base::Config config = tests::config_for(region.options);
  testing::internal::CaptureStderr();
  config.stats = "stderr";
  write_report(*region, region->own_job(), config, 1);
  config.stats = "off";
  region->stats().count(Counter::hits_ram, 3);
  write_report(*region, region->own_job(), config, 1);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  testing::internal::CaptureStderr();
  config.stats = "stderr";
  write_report(*region, region->own_job(), config, 1);
  EXPECT_TRUE(testing::internal::GetCapturedStderr().starts_with("cubeshim: served: 3 file opens"));
}

TEST(JobReport, FileThatCannotBeWrittenIsReportedInOneLine) {
  const TestRegion region;
  base::Config config = tests::config_for(region.options);
  config.stats = "/no/such/dir/report";
  testing::internal::CaptureStderr();
  write_report(*region, region->own_job(), config, 1);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "cubeshim: warn: CUBESHIM_STATS: cannot write /no/such/dir/report: No such file or "
            "directory\n");
}

TEST(JobReport, DoesNotFollowALink) {
  const TestRegion region;
  const tests::TempDir dir;
  const std::string target = dir.write("target", "untouched");
  base::Config config = tests::config_for(region.options);
  config.stats = dir / "link";
  ASSERT_EQ(symlink("target", config.stats.c_str()), 0);
  testing::internal::CaptureStderr();
  write_report(*region, region->own_job(), config, 1);
  EXPECT_NE(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(content(target), "untouched");
}

TEST(JobReport, CoversLivingAndKilledProcesses) {
  const TestRegion region;
  const auto serve = [](const Region& mine) { mine.stats().count(Counter::bytes_served, 10); };
  const tests::Child living = tests::attached_child(region.options, serve);
  tests::Child killed = tests::attached_child(region.options, serve);
  killed.kill();
  EXPECT_EQ(collect(*region, region->own_job()).totals[Counter::bytes_served], 20U);
}

TEST(JobReport, LetsOneCallerWriteWhenTheIntervalHasPassed) {
  const TestRegion region;
  const std::uint32_t job = region->own_job();
  EXPECT_FALSE(report_interval_passed(*region, job, 5)) << "it begins with the first call";
  EXPECT_FALSE(report_interval_passed(*region, job, 5));
  for (int round = 0; round < 50; ++round) {
    region->job_row(job).next_report_ns.store(1);
    std::atomic<int> claimed{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&] { claimed += report_interval_passed(*region, job, 5) ? 1 : 0; });
    for (auto& thread : threads) thread.join();
    ASSERT_EQ(claimed.load(), 1);
  }
  EXPECT_GT(region->job_row(job).next_report_ns.load(), base::monotonic_ns());
}

}  // namespace
}  // namespace cube::cache
