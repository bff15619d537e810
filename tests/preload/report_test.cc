// The report of a job. It has the counts of all processes, no matter how they ended. Also its two
// formats and the life of the region.
#include <fstream>
#include <regex>

#include "tests/support/preload_job.h"

using cube::preload::Job;

TEST(Report, HasTheFieldsOfTheContract) {
  Job job;
  expect_well(
      job.helper({"read", job.file(1), job.file(2), job.file(3), job.file(2), job.file(2)}));
  EXPECT_EQ(job.report("opens"), 5);
  EXPECT_EQ(job.report("misses"), 3);
  EXPECT_EQ(job.report("hits.ram"), 2);
  EXPECT_DOUBLE_EQ(job.report("hit_rate"), 0.4);
  EXPECT_EQ(job.report("bytes_served"), 1 + 3 * 100 + 4096);
  EXPECT_EQ(job.report("origin.opens"), 3);
  EXPECT_EQ(job.report("origin.bytes"), 1 + 100 + 4096);
  for (const char* field :
       {"origin.reads", "origin.stats", "calls_saved", "ram.capacity", "ram.used", "ram.entries",
        "latency_us.hit.p50", "latency_us.hit.p99", "latency_us.miss.p50", "latency_us.miss.p99"}) {
    EXPECT_GE(job.report(field), 0) << field;
  }
  EXPECT_GT(job.report("latency_us.miss.p50"), 0);
  EXPECT_EQ(job.report("ram.entries"), 3);
  EXPECT_GT(job.report("time_ns.misses"), 1000 * job.report("latency_us.miss.p50"));
  EXPECT_EQ(job.report("time_ns.slow_hits"), 0);
}

TEST(Report, CountsBypassedOpens) {
  Job job;
  job.env["CUBESHIM_MAX_FILE"] = "64K";
  job.env["CUBESHIM_BLOCK"] = "0";
  expect_well(job.python(R"(
os.close(os.open(path(2), os.O_RDWR))
os.close(os.open(path(2), os.O_RDONLY | os.O_PATH))
os.close(os.open(D, os.O_RDONLY))
with open(path(7), 'rb') as f: assert f.read() == content(7)
try: open(D + '/none', 'rb')
except FileNotFoundError: pass
)"));
  EXPECT_EQ(job.report("bypassed.write"), 1) << job.report_text();
  EXPECT_EQ(job.report("bypassed.flags"), 1);
  EXPECT_EQ(job.report("bypassed.size"), 1);
  EXPECT_EQ(job.report("bypassed.error"), 1);
}

TEST(Report, ProcessThatOnlyStatsHitsRecordsOfOthers) {
  Job job;
  expect_well(job.python(R"(
for n in range(10): check(n)
# Not a forked child: it does not know what its parent has.
subprocess.run([sys.executable, '-c', f"""
import os
for turn in range(10):
  for n in range(10): assert os.stat({D!r} + '/f' + str(n)).st_size == {SIZES!r}[n]
"""], check=True)
)"));
  EXPECT_GE(job.report("stat_hits"), 80) << job.report_text();
}

TEST(Report, NamesUnservedFilesAndReasons) {
  Job job;
  job.env["CUBESHIM_STATS_FORMAT"] = "text";
  job.env["CUBESHIM_MAX_FILE"] = "64K";
  job.env["CUBESHIM_BLOCK"] = "0";
  expect_well(job.python(R"(
for n in range(10): check(n)
os.fstatvfs(os.open(path(4), os.O_RDONLY))
os.sendfile(os.open('/dev/null', os.O_WRONLY), os.open(path(5), os.O_RDONLY), 0, 100)
)"));
  const std::string text = job.report_text();
  EXPECT_TRUE(std::regex_search(
      text,
      std::regex("cubeshim: served: 10 file opens, .*\ncubeshim: not "
                 "served: 2 of files larger than CUBESHIM_MAX_FILE "
                 "\\(raise it, or see CUBESHIM_BLOCK\\), first /\\S+/data/f\\d; served first, "
                 "then handed to the kernel: 2 \\(for fstatvfs(64)? 1, "
                 "sendfile(64)? 1\\)\ncubeshim: time saved: .*\n$")))
      << text;
}

TEST(Report, NamesAFileThatWasOpenedByAnotherName) {
  Job job;
  job.env["CUBESHIM_STATS"] = "stderr";
  job.env["CUBESHIM_STATS_FORMAT"] = "text";
  ASSERT_EQ(symlink(job.data().c_str(), job.path("link").c_str()), 0);
  const std::string line =
      "cubeshim: served: nothing; not seen: " + job.path("link/f3") + " lies below a prefix";
  auto o = job.python(
      "for n in range(5):\n  with open(D.removesuffix('data') + 'link/f3', 'rb') as f: f.read()\n");
  EXPECT_EQ(o.status, 0) << o.err;
  EXPECT_NE(o.err.find(line), std::string::npos) << o.err;
  // The line also counts programs that the first program has started. There is a single line for
  // all of them.
  const std::string read = cube::preload::helper_path() + " read " + job.path("link/f3") + "; ";
  o = job.run({"/bin/sh", "-c", read + read + read + "true"});
  ASSERT_NE(o.err.find(line), std::string::npos) << o.err;
  EXPECT_EQ(o.err.find("cubeshim: served:", o.err.find(line) + 1), std::string::npos) << o.err;
  // A file that is opened by its right name from another directory counts as opened by the job.
  o = job.run({"/bin/sh", "-c",
               "cd " + job.path("link") + " && " + cube::preload::helper_path() + " read f3"});
  EXPECT_NE(o.err.find("cubeshim: served: 1 file open, "), std::string::npos) << o.err;
  job.env["CUBESHIM_STATS"] = "off";
  EXPECT_EQ(job.run({"/bin/sh", "-c", read + "true"}).err, "");
}

TEST(Report, ReportsThatNothingBelowAPrefixWasOpened) {
  Job job;
  job.env["CUBESHIM_STATS"] = "stderr";
  job.env["CUBESHIM_STATS_FORMAT"] = "text";
  const auto o =
      job.python("for n in range(50):\n  with open('/proc/self/stat', 'rb') as f: f.read()\n");
  EXPECT_NE(o.err.find("cubeshim: served: nothing; no file below " + job.data() + " was opened"),
            std::string::npos)
      << o.err;
  // Another job has made the cache, so the prefix is spelled correctly, and this job is only a
  // helper.
  job.env["CUBESHIM_RAM_KEEP"] = "1";
  expect_well(job.helper({"read", job.file(0)}));
  EXPECT_EQ(job.python("for n in range(50):\n  with open('/proc/self/stat', 'rb') as f: "
                       "f.read()\n")
                .err,
            "");
  ASSERT_EQ(unlink(job.region().c_str()), 0);
  // A command that opens almost nothing or only reads metadata gets no line.
  EXPECT_EQ(job.run({"true"}).err, "");
  std::vector<std::string> look = {"ls", "-l"};
  for (int n = 0; n < 20; ++n) look.push_back(job.file(n % 8));
  EXPECT_EQ(job.run(look).err, "");
}

TEST(Report, CountsProcessesWithEveryKindOfExit) {
  for (const char* how :
       {"return", "_exit", "_Exit", "quick_exit", "exit_group", "abort", "kill", "segv"}) {
    SCOPED_TRACE(how);
    Job job;
    expect_well(job.helper({"children", how, job.file(4), "7", "3"}));
    EXPECT_EQ(job.report("opens"), 21) << job.report_text();
    EXPECT_EQ(job.report("misses"), 1);
    EXPECT_EQ(job.report("hits.ram"), 20);
    EXPECT_EQ(job.report("bytes_served"), 21 * 5000) << "served bytes of children that end so";
    EXPECT_FALSE(cube::preload::exists(job.region()));
  }
}

TEST(Report, IsWrittenAfterEveryKindOfExitOfTheFirstProcess) {
  for (const char* how : {"return", "_exit", "_Exit", "quick_exit"}) {
    SCOPED_TRACE(how);
    Job job;
    job.helper({"end", how, job.file(4), "3"});
    EXPECT_EQ(job.report("opens"), 3) << job.report_text();
  }
}

TEST(Report, CoversProgramsStartedByTheFirst) {
  Job job;
  const std::string helper = cube::preload::helper_path();
  const auto o = job.run({"/bin/sh", "-c",
                          helper + " read " + job.file(4) + "; " + helper + " read " + job.file(4) +
                              " & wait; " + helper + " end kill " + job.file(4) + " 2; true"});
  expect_well(o);
  EXPECT_EQ(job.report("opens"), 4) << job.report_text();
}

TEST(Report, JobIsKnownByTheVariable) {
  Job job;
  const std::string helper = cube::preload::helper_path();
  const auto o =
      job.run({"/bin/sh", "-c", "echo $CUBESHIM_JOB; " + helper + " job; " + helper + " job"});
  std::stringstream lines(o.out);
  std::string one, two, three;
  lines >> one >> two >> three;
  EXPECT_EQ(two, three);
  EXPECT_NE(two, "none");
  // A job that has ended no longer exists: a process with its id in the environment starts a new
  // job.
  job.env["CUBESHIM_JOB"] = two;
  EXPECT_NE(job.helper({"job"}).out, two + "\n");
  expect_well(job.helper({"read", job.file(2)}));
  EXPECT_EQ(job.report("opens"), 1);
  job.env["CUBESHIM_JOB"] = "nonsense";
  expect_well(job.helper({"read", job.file(2)}));
}

TEST(Report, ClassicHasTheTwoLines) {
  Job job;
  job.env["CUBESHIM_STATS"] = "stderr";
  job.env["CUBESHIM_STATS_FORMAT"] = "classic";
  const auto o = job.helper({"read", job.file(1), job.file(2), job.file(2), job.file(2)});
  const std::regex line(
      "request_count:4 hit_count:2 miss_count:2 hit_rate:50(\\.0+)?% miss_rate:50(\\.0+)?%");
  EXPECT_EQ(
      std::distance(std::sregex_iterator(o.err.begin(), o.err.end(), line), std::sregex_iterator()),
      2)
      << o.err;
}

TEST(Report, OffAndPerProcessFiles) {
  Job job;
  job.env["CUBESHIM_STATS"] = "off";
  const auto o = job.helper({"read", job.file(1)});
  EXPECT_EQ(o.err, "");
  job.env["CUBESHIM_STATS"] = job.path("report-%p");
  const auto python = job.python("check(1)\nprint(os.getpid())\n");
  EXPECT_TRUE(
      cube::preload::exists(job.path("report-" + python.out.substr(0, python.out.size() - 1))))
      << python.out << python.err;
}

TEST(Region, ExistsOnlyDuringTheJob) {
  Job job;
  expect_well(job.helper({"region", job.region(), job.file(6)}));
  EXPECT_FALSE(cube::preload::exists(job.region()));
  job.helper({"end", "abort", job.file(6), "1"});
  job.helper({"end", "kill", job.file(6), "1"});
  // No process could remove the region. The next job removes it or takes it over.
  expect_well(job.helper({"read", job.file(6)}));
  EXPECT_FALSE(cube::preload::exists(job.region()));
}

TEST(Region, IsRemovedWithTheLastForkedProcess) {
  Job job;
  expect_well(job.python(R"(
check(6)
pids = []
for i in range(4):
  pid = os.fork()
  if pid == 0:
    check(6)
    os._exit(0)
  pids.append(pid)
for pid in pids: os.waitpid(pid, 0)
os._exit(0)
)"));
  EXPECT_FALSE(cube::preload::exists(job.region()));
}

TEST(Region, ServesNothingOnceItIsUnlinkedAndAChildHasEnded) {
  Job job;
  job.checks_region = false;
  job.env["REGION"] = job.region();
  const auto outcome = job.python(R"(
def read():
  with open(path(0), 'rb') as f:
    return f.read()
assert read() == read() == content(0)
os.unlink(os.environ['REGION'])
# The child makes a region of its own, and tells that one.
subprocess.run(['bash', '-c', 'echo changed > "$1"', 'bash', path(0)], check=True)
assert read() == b'changed\n'
)");
  expect_well(outcome);
}

TEST(Region, StaysIfItIsToBeKept) {
  Job job;
  job.env["CUBESHIM_RAM_KEEP"] = "1";
  job.checks_region = false;
  expect_well(job.helper({"read", job.file(6)}));
  EXPECT_TRUE(cube::preload::exists(job.region()));
  expect_well(job.helper({"read", job.file(6)}));
  EXPECT_EQ(job.report("misses"), 0) << job.report_text();
  EXPECT_EQ(job.report("hits.ram"), 1);
}

TEST(Report, LargeFileThatIsBeingWrittenIsNotCalledTooLarge) {
  Job job;
  job.env["CUBESHIM_MAX_FILE"] = "64K";
  expect_well(job.python(R"(
writer = open(path(7), 'r+b')
writer.write(content(7)[:10])
writer.flush()
check(7)
)"));
  EXPECT_EQ(job.report("bypassed.busy"), 1) << job.report_text();
  EXPECT_EQ(job.report("bypassed.size"), 0) << job.report_text();
}
