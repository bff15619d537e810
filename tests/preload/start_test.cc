// Before main and after it: allocators, early constructors, late destructors; what leaves the library.
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "tests/support/preload_job.h"

using cube::preload::Job;

namespace {

constexpr const char* k_allocators[] = {"/usr/lib/x86_64-linux-gnu/libjemalloc.so.2",
                                        "/usr/lib/x86_64-linux-gnu/libmimalloc.so.2"};
void expect_well(const cube::preload::Outcome& o) { EXPECT_EQ(o.status, 0) << o.out << o.err; }

}  // namespace

TEST(Start, WithOtherAllocatorsInBothOrders) {
  for (const char* allocator : k_allocators) {
    if (!cube::preload::exists(allocator)) GTEST_SKIP() << "no " << allocator;
    for (const bool first : {true, false}) {
      SCOPED_TRACE(std::string(allocator) + (first ? " first" : " last"));
      Job job;
      const std::string ours = job.env["LD_PRELOAD"];
      job.env["LD_PRELOAD"] = first ? std::string(allocator) + ":" + ours : ours + ":" + allocator;
      expect_well(job.helper({"threads", job.data(), "10", "200"}));
      expect_well(job.helper({"fork-threads", job.data(), "10", "5"}));
      expect_well(job.python("for n in range(10): check(n)\n"));
      EXPECT_GE(job.report("misses"), 10);
    }
  }
}

TEST(Start, ConstructorsBeforeOursAndDestructorsAfter) {
  for (const char* mode : {"virtual", "real", "off"}) {
    for (const bool first : {true, false}) {
      SCOPED_TRACE(std::string(mode) + (first ? " first" : " last"));
      Job job;
      const std::string ours = job.env["LD_PRELOAD"];
      job.env["CUBESHIM_MODE"] = mode;
      job.env["LD_PRELOAD"] = first ? PRELOAD_EARLY ":" + ours : ours + ":" PRELOAD_EARLY;
      job.env["EARLY_FILE"] = job.file(6);
      const auto o = job.helper({"read", job.file(6)});
      EXPECT_EQ(o.err, "constructor: right\ndestructor: right\n");
      EXPECT_EQ(o.status, 0);
    }
  }
}

TEST(Start, ConstructorsWithAnAllocatorThatMaps) {
  if (!cube::preload::exists(k_allocators[0])) GTEST_SKIP();
  Job job;
  job.env["LD_PRELOAD"] = std::string(PRELOAD_EARLY) + ":" + k_allocators[0] + ":" + job.env["LD_PRELOAD"];
  job.env["EARLY_FILE"] = job.file(6);
  EXPECT_EQ(job.helper({"read", job.file(6)}).err, "constructor: right\ndestructor: right\n");
}

TEST(Start, NothingIsMadeForAProgramThatReadsNothingCovered) {
  Job job;
  job.env["CUBESHIM_LOG"] = "debug";
  // Seen from the program itself, and from its system calls.
  const auto o = job.run({"/bin/sh", "-c", "ls /dev/shm; cat /etc/hostname > /dev/null"});
  EXPECT_EQ(o.out.find(job.name()), std::string::npos) << o.out;
  EXPECT_EQ(job.report("opens"), 0) << job.report_text();
  EXPECT_EQ(job.report("misses"), 0);
}

TEST(Start, WithoutPrefixesItDoesNothing) {
  Job job;
  job.env.erase("CUBESHIM_PREFIXES");
  const auto o = job.helper({"read", job.file(6)});
  EXPECT_EQ(o.status, 0);
  EXPECT_EQ(o.err, "");
  EXPECT_EQ(job.report_text(), "");
  EXPECT_EQ(job.helper({"job"}).out, "none\n");
}

TEST(Start, ModeOffPassesEverythingThrough) {
  Job job;
  job.env["CUBESHIM_MODE"] = "off";
  const auto o = job.helper({"region", job.file(6), job.file(6)});
  EXPECT_EQ(o.status, 0) << o.err;
  EXPECT_FALSE(cube::preload::exists(job.region()));
}

TEST(Exports, AreThoseOfHooksDef) {
  std::set<std::string> wanted = {"vfork", "__vfork", "cubeshim_start_sidecar", "cubeshim_noted_opens"};
  std::ifstream rows(HOOKS_DEF);
  const std::regex row("^CUBE_[A-Z_]+\\([^,]+, *([A-Za-z_0-9]+),.*");
  for (std::string line; std::getline(rows, line);) {
    std::smatch match;
    if (std::regex_match(line, match, row)) wanted.insert(match[1]);
  }
  ASSERT_GT(wanted.size(), 150U);
  Job job;
  job.env.erase("LD_PRELOAD");
  const auto o = job.run({"nm", "-D", "--defined-only", cube::preload::library_path()});
  std::set<std::string> found;
  std::stringstream lines(o.out);
  for (std::string address, kind, name; lines >> address >> kind >> name;) found.insert(name.substr(0, name.find('@')));
  EXPECT_EQ(found, wanted);
}

TEST(Exports, NeedOnlyLibc) {
  Job job;
  job.env.erase("LD_PRELOAD");
  const auto o = job.run({"objdump", "-p", cube::preload::library_path()});
  std::stringstream lines(o.out);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("NEEDED") == std::string::npos) continue;
    EXPECT_TRUE(line.find("libc.so.6") != std::string::npos || line.find("ld-linux") != std::string::npos ||
                line.find("libm.so.6") != std::string::npos)
        << line;
  }
}

TEST(Calls, AThousandHitsCostOnlyThePlaceholders) {
  Job job;
  if (!cube::preload::exists("/usr/bin/strace")) GTEST_SKIP() << "no strace";
  const std::string trace = job.path("trace");
  const std::string preload = job.env["LD_PRELOAD"];
  job.env.erase("LD_PRELOAD");
  const auto o = job.run({"/usr/bin/strace", "-f", "-o", trace, "-E", "LD_PRELOAD=" + preload, cube::preload::helper_path(),
                          "hits", job.file(4), "1000"});
  ASSERT_EQ(o.status, 0) << o.err;
  std::ifstream lines(trace);
  int marks = 0;
  std::map<std::string, int> calls;
  const std::regex call("^[0-9]+ +([a-z_0-9]+)\\(.*");
  for (std::string line; std::getline(lines, line);) {
    if (line.find("\"MARK\"") != std::string::npos) {
      ++marks;
      continue;
    }
    std::smatch match;
    if (marks == 1 && std::regex_match(line, match, call)) ++calls[match[1]];
  }
  EXPECT_EQ(marks, 2);
  int total = 0;
  std::string text;
  for (const auto& [name, n] : calls) {
    total += n;
    text += name + " " + std::to_string(n) + ", ";
    // Nothing that could touch the origin.
    if (name == "openat") {
      EXPECT_LE(n, 2);
    }
    EXPECT_TRUE(name != "read" && name != "pread64" && name != "newfstatat" && name != "fstat" && name != "statx" &&
                name != "lseek" && name != "ioctl" && name != "getpid")
        << name << " " << n;
  }
  EXPECT_LE(total, 4 * 1000) << text;
  RecordProperty("calls", text);
  std::printf("1000 hits: %s\n", text.c_str());
}
