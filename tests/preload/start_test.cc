// The library before and after main: allocators, early constructors and late destructors. Also the
// symbols that the library exports.
#include <spawn.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <climits>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "tests/support/preload_job.h"

using cube::preload::Job;
using cube::tests::TempDir;
using cube::tests::TmpfsMount;

namespace {

constexpr const char* k_allocators[] = {"/usr/lib/x86_64-linux-gnu/libjemalloc.so.2",
                                        "/usr/lib/x86_64-linux-gnu/libmimalloc.so.2"};

// The page faults of a program that opens nothing, from its exec to its end. Returns the minimum of
// a few runs.
long faults_of_true(const std::map<std::string, std::string>& env) {
  std::vector<std::string> rows;
  for (const auto& [name, value] : env) rows.push_back(name + "=" + value);
  std::vector<char*> environment;
  for (std::string& row : rows) environment.push_back(row.data());
  environment.push_back(nullptr);
  long least = LONG_MAX;
  for (int run = 0; run < 5; ++run) {
    std::string program = "/bin/true";
    char* const command[] = {program.data(), nullptr};
    pid_t child = -1;
    if (posix_spawn(&child, program.c_str(), nullptr, nullptr, command, environment.data()) != 0)
      return -1;
    int status = -1;
    rusage usage{};
    if (wait4(child, &status, 0, &usage) != child || status != 0) return -1;
    least = std::min(least, usage.ru_minflt);
  }
  return least;
}

// Returns the system calls of a program with the library, as strace prints them, or an empty string
// if strace is missing.
std::string calls_of_true(const Job& job) {
  if (!cube::preload::exists("/usr/bin/strace")) return {};
  Job tracer(0);
  tracer.env.clear();
  std::vector<std::string> command = {"/usr/bin/strace", "-f", "-o", tracer.path("trace")};
  for (const auto& [name, value] : job.env)
    command.insert(command.end(), {"-E", name + "=" + value});
  command.push_back("/bin/true");
  return tracer.run(command).status == 0 ? cube::preload::read_file(tracer.path("trace"))
                                         : std::string();
}

long count_of(const std::string& part, const std::string& text) {
  long n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

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
  job.env["LD_PRELOAD"] =
      std::string(PRELOAD_EARLY) + ":" + k_allocators[0] + ":" + job.env["LD_PRELOAD"];
  job.env["EARLY_FILE"] = job.file(6);
  EXPECT_EQ(job.helper({"read", job.file(6)}).err, "constructor: right\ndestructor: right\n");
}

TEST(Start, MakesNoRegionForAProgramThatReadsNothingCovered) {
  Job job;
  job.env["CUBESHIM_LOG"] = "debug";
  // The check uses the program's output and its system calls.
  const auto o = job.run({"/bin/sh", "-c", "ls /dev/shm; cat /etc/hostname > /dev/null"});
  EXPECT_EQ(o.out.find(job.name()), std::string::npos) << o.out;
  EXPECT_EQ(job.report("opens"), 0) << job.report_text();
  EXPECT_EQ(job.report("misses"), 0);
}

// Every child of a job pays for the page faults of its start. Static arrays with destructors, or
// std::locale through {fmt}, would cost many more. Measured values are 57 to 61. They vary because
// the kernel also maps pages around a fault, but only pages that are in the page cache.
TEST(Start, CostsFewPageFaults) {
  Job job;
  auto plain = job.env;
  plain.erase("LD_PRELOAD");
  const long without = faults_of_true(plain), with = faults_of_true(job.env);
  ASSERT_GT(without, 0);
  ASSERT_GT(with, 0);
  EXPECT_LE(with - without, 66);
}

TEST(Start, ReadsTheTableOfMountsAtMostOnce) {
  Job job;
  const std::string on_root = calls_of_true(job);
  if (on_root.empty()) GTEST_SKIP() << "no strace";
  // The data set is not on the root's file system.
  const TmpfsMount mount("1m");
  if (!mount.is_mounted()) GTEST_SKIP() << "cannot mount";
  job.env["CUBESHIM_PREFIXES"] = mount.path();
  EXPECT_EQ(count_of("/proc/self/mountinfo", calls_of_true(job)), 1);
  // The kernel has the path of a new directory in its cache.
  const TempDir here;
  struct stat root {
  }, of_dir{};
  ASSERT_EQ(stat("/", &root) | stat(here.path().c_str(), &of_dir), 0);
  if (root.st_dev != of_dir.st_dev)
    GTEST_SKIP() << "the tests are on another file system than the root's";
  job.env["CUBESHIM_PREFIXES"] = here.path();
  EXPECT_EQ(count_of("/proc/self/mountinfo", calls_of_true(job)), 0);
}

TEST(Start, ReadsNothingAboutTheProcessAtTheEndWithoutARegion) {
  Job job;
  const std::string calls = calls_of_true(job);
  if (calls.empty()) GTEST_SKIP() << "no strace";
  EXPECT_EQ(count_of("/stat\"", calls), 1) << calls;
  EXPECT_EQ(count_of("boot_id", calls), 0) << calls;
  EXPECT_EQ(count_of(job.region(), calls), 1) << calls;
}

TEST(Start, WithoutPrefixesItDoesNothing) {
  Job job;
  job.env.erase("CUBESHIM_PREFIXES");
  const auto o = job.helper({"read", job.file(6)});
  EXPECT_EQ(o.status, 0);
  EXPECT_EQ(o.err,
            "cubeshim: warn: nothing is served: CUBESHIM_PREFIXES is not set; it names the "
            "directories to serve\n");
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

// Only the kernel examines the arguments.
TEST(Start, ModeOffReadsNoPathOrNameOfAnAttribute) {
  Job job;
  job.env["CUBESHIM_MODE"] = "off";
  const auto o = job.python(R"(
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
bad = ctypes.c_void_p(libc.mmap(None, ctypes.c_size_t(4096), 0, 0x22, -1, ctypes.c_long(0)))
room = ctypes.create_string_buffer(256)
for call in (lambda: libc.statx(-100, bad, 0, 0, room),
             lambda: libc.setxattr(b'/', bad, b'x', ctypes.c_size_t(1), 0),
             lambda: libc.rmdir(bad), lambda: libc.open(bad, 0)):
    assert call() == -1 and ctypes.get_errno() == errno.EFAULT, ctypes.get_errno()
)");
  EXPECT_EQ(o.status, 0) << o.err;
}

TEST(Exports, MatchHooksDef) {
  std::set<std::string> wanted = {
      "vfork", "__vfork", "dlopen", "dlsym", "cubeshim_start_sidecar", "cubeshim_noted_opens"};
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
  for (std::string address, kind, name; lines >> address >> kind >> name;)
    found.insert(name.substr(0, name.find('@')));
  EXPECT_EQ(found, wanted);
}

TEST(Exports, NeedOnlyLibc) {
  Job job;
  job.env.erase("LD_PRELOAD");
  const auto o = job.run({"objdump", "-p", cube::preload::library_path()});
  std::stringstream lines(o.out);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("NEEDED") == std::string::npos) continue;
    EXPECT_TRUE(line.find("libc.so.6") != std::string::npos ||
                line.find("ld-linux") != std::string::npos)
        << line;
  }
}

namespace {

// The system calls of a program with the library between its two opens of "MARK".
std::map<std::string, int> calls_between_marks(Job& job, const std::vector<std::string>& program) {
  const std::string trace = job.path("trace");
  const std::string preload = job.env["LD_PRELOAD"];
  job.env.erase("LD_PRELOAD");
  std::vector<std::string> command = {"/usr/bin/strace",      "-f", "-o", trace, "-E",
                                      "LD_PRELOAD=" + preload};
  command.insert(command.end(), program.begin(), program.end());
  const auto o = job.run(command);
  EXPECT_EQ(o.status, 0) << o.err;
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
  return calls;
}

}  // namespace

TEST(Calls, AThousandHitsCostOnlyThePlaceholders) {
  Job job;
  if (!cube::preload::exists("/usr/bin/strace")) GTEST_SKIP() << "no strace";
  const auto calls =
      calls_between_marks(job, {cube::preload::helper_path(), "hits", job.file(4), "1000"});
  int total = 0;
  std::string text;
  for (const auto& [name, n] : calls) {
    total += n;
    text += name + " " + std::to_string(n) + ", ";
    // No call may touch the origin.
    if (name == "openat") {
      EXPECT_LE(n, 2);
    }
    EXPECT_TRUE(name != "read" && name != "pread64" && name != "newfstatat" && name != "fstat" &&
                name != "statx" && name != "lseek" && name != "ioctl" && name != "getpid")
        << name << " " << n;
  }
  EXPECT_LE(total, 4 * 1000) << text;
  RecordProperty("calls", text);
  std::printf("1000 hits: %s\n", text.c_str());
}

// Runs in a process that has a cache.
TEST(Calls, RelativePathsOutsideThePrefixesCostNoMoreCalls) {
  Job job;
  if (!cube::preload::exists("/usr/bin/strace")) GTEST_SKIP() << "no strace";
  const std::string script = job.path("script.py");
  std::ofstream(script) << R"(
import os, sys
for _ in range(3): open(sys.argv[1], 'rb').read()
os.mkdir(sys.argv[2])
os.chdir(sys.argv[2])
open('f', 'w').close()
directory = os.open('.', os.O_RDONLY)
def mark():
  try: os.open('MARK', os.O_RDONLY)
  except FileNotFoundError: pass
mark()
for _ in range(100):
  os.close(os.open('f', os.O_RDONLY))
  os.close(os.open('f', os.O_RDONLY, dir_fd=directory))
  os.access('f', os.W_OK)
mark()
)";
  auto calls =
      calls_between_marks(job, {"/usr/bin/python3", script, job.file(4), job.path("outside")});
  EXPECT_EQ(calls["openat"], 200);
  for (const auto* name : {"getcwd", "readlink", "readlinkat", "statx", "newfstatat"})
    EXPECT_LE(calls[name], 5) << name;
}
