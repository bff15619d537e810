// Latency, mounting and the command line.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <latch>
#include <thread>

#include "mount.h"

namespace cube::lagfs::testing {
namespace {

using Latency = LagfsTest;
using Mounting = LagfsTest;

TEST_F(Latency, IsAppliedToEachKindOfOperation) {
  write_file(mount_.source("file"), random_bytes(8192, 1));
  mount_.start({"--lookup-us=20000", "--open-us=30000", "--read-us=40000", "--getattr-us=50000",
                "--readdir-us=60000", "--other-us=70000", "--opendir-us=80000", "--close-us=90000",
                "--attr-timeout=0", "--direct"});
  struct stat st {};
  struct statfs fs {};
  char buffer[4096];
  int fd = -1;
  EXPECT_GE(seconds_for([&] { access(mount_.at("absent").c_str(), F_OK); }), 0.020);
  EXPECT_GE(seconds_for([&] { fd = open(mount_.at("file").c_str(), O_RDONLY); }), 0.020 + 0.030);
  EXPECT_GE(seconds_for([&] { EXPECT_EQ(read(fd, buffer, sizeof(buffer)), 4096); }), 0.040);
  EXPECT_GE(seconds_for([&] { EXPECT_EQ(fstat(fd, &st), 0); }), 0.050);
  EXPECT_GE(seconds_for([&] { EXPECT_EQ(fstatfs(fd, &fs), 0); }), 0.070);
  EXPECT_GE(seconds_for([&] { close(fd); }), 0.090);
  EXPECT_GE(seconds_for([&] { list(mount_.target()); }), 0.080 + 2 * 0.060);
}

TEST_F(Latency, IsPerReadRequest) {
  write_file(mount_.source("file"), random_bytes(40'960, 1));
  mount_.start(fast({"--read-us=20000", "--max-read=4096", "--direct"}));
  EXPECT_GE(seconds_for([&] { read_file(mount_.at("file"), 4096); }), 11 * 0.020)
      << "10 reads, and one finds the end";
  EXPECT_EQ(mount_.counters()["read"], 11U);
}

TEST_F(Latency, OverlapsForParallelClients) {
  constexpr int k_clients = 64;
  // On a busy machine, this many clients may sometimes be slow, but not every time.
  constexpr int k_rounds = 10;
  constexpr double k_latency = 0.1, k_enough = k_clients * k_latency / 4;
  for (int i = 0; i < k_rounds * k_clients; ++i)
    write_file(mount_.source(std::to_string(i)), "data");
  mount_.start(fast({"--lookup-us=100000"}));
  double least = k_clients * k_latency;
  for (int round = 0; round < k_rounds && least >= k_enough; ++round) {
    mount_.reset();
    std::latch start(k_clients + 1);
    std::vector<std::thread> threads;
    for (int i = 0; i < k_clients; ++i) {
      // Each round uses other names, because the kernel keeps those that it has looked up.
      threads.emplace_back([&, path = mount_.at(std::to_string(round * k_clients + i))] {
        struct stat st {};
        start.arrive_and_wait();
        EXPECT_EQ(stat(path.c_str(), &st), 0);
      });
    }
    const double seconds = seconds_for([&] {
      start.arrive_and_wait();
      for (auto& thread : threads) thread.join();
    });
    EXPECT_GE(seconds, k_latency);
    EXPECT_EQ(mount_.counters()["lookup"], 64U);
    least = std::min(least, seconds);
  }
  EXPECT_LT(least, k_enough);
}

TEST_F(Latency, BandwidthIsSharedByAllReads) {
  constexpr int k_clients = 4;
  for (int i = 0; i < k_clients; ++i)
    write_file(mount_.source(std::to_string(i)), random_bytes(500'000, 1));
  mount_.start(fast({"--bandwidth-mb=10"}));
  EXPECT_GE(seconds_for([&] {
              std::vector<std::thread> threads;
              for (int i = 0; i < k_clients; ++i) {
                threads.emplace_back([&, i] { read_file(mount_.at(std::to_string(i))); });
              }
              for (auto& thread : threads) thread.join();
            }),
            4 * 0.05);
}

TEST_F(Mounting, IsReadyWhenTheCommandReturns) {
  write_file(mount_.source("file"), "data");
  mount_.start({});
  EXPECT_TRUE(mount_.is_mounted());
  EXPECT_EQ(list(mount_.target()), std::vector<std::string>{"file"});
  mount_.stop();
  EXPECT_FALSE(mount_.is_mounted());
  EXPECT_TRUE(list(mount_.target()).empty());
}

TEST_F(Mounting, EndsWithTheUnmount) {
  mount_.start_in_foreground({});
  mount_.stop();  // waits for the process, and checks that it exits with 0
  EXPECT_FALSE(mount_.is_mounted());
}

TEST_F(Mounting, SignalUnmountsEvenABusyMount) {
  write_file(mount_.source("file"), "data");
  for (const int signal : {SIGTERM, SIGINT}) {
    mount_.start_in_foreground({});
    const int fd = open(mount_.at("file").c_str(), O_RDONLY);
    ASSERT_GE(fd, 0);
    kill(mount_.child(), signal);
    const int status = mount_.wait_for_child();
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    EXPECT_FALSE(mount_.is_mounted());
    char byte = 0;
    EXPECT_EQ(read(fd, &byte, 1), -1);
    EXPECT_EQ(errno, ENOTCONN);
    close(fd);
  }
}

TEST_F(Mounting, PrintsTheCountersAtSigusr1) {
  mount_.start_in_foreground({});
  access(mount_.at("absent").c_str(), F_OK);
  kill(mount_.child(), SIGUSR1);
  // The kernel delivers the signal with the lowest number first: SIGUSR1 (10) before SIGTERM (15).
  kill(mount_.child(), SIGTERM);
  mount_.wait_for_child();
  EXPECT_NE(mount_.child_stderr().find("lookup 1\n"), std::string::npos) << mount_.child_stderr();
}

struct BadArguments {
  const char* name;
  Arguments arguments;
  const char* complaint;  // the text that names the wrong value
  const char* advice;     // the text that names the accepted values
};

class CommandLine : public ::testing::TestWithParam<BadArguments> {};

TEST_P(CommandLine, IsRefusedInOneLine) {
  const TemporaryDirectory directory;
  Arguments arguments = GetParam().arguments;
  for (auto& argument : arguments) {
    if (argument == "DIR") argument = directory.path();
  }
  const Outcome outcome = run_lagfs(arguments);
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_NE(outcome.err.find(GetParam().complaint), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find(GetParam().advice), std::string::npos) << outcome.err;
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
}

INSTANTIATE_TEST_SUITE_P(
    Bad, CommandLine,
    ::testing::Values(
        BadArguments{"MissingMountpoint", {"DIR"}, "MOUNTPOINT is required", "usage: lagfs"},
        BadArguments{"AbsentSource",
                     {"/no/such/place", "DIR"},
                     "SOURCE '/no/such/place'",
                     "existing directory"},
        BadArguments{"FileAsSource", {"/proc/self/status", "DIR"}, "SOURCE", "not a directory"},
        BadArguments{"AbsentMountpoint",
                     {"DIR", "/no/such/place"},
                     "MOUNTPOINT '/no/such/place'",
                     "existing directory"},
        BadArguments{
            "NegativeLatency", {"--read-us", "-3", "DIR", "DIR"}, "--read-us: '-3'", "from 0 to"},
        BadArguments{
            "WordAsLatency", {"--open-us=fast", "DIR", "DIR"}, "--open-us: 'fast'", "from 0 to"},
        BadArguments{"NegativeTimeout",
                     {"--attr-timeout=-1", "DIR", "DIR"},
                     "--attr-timeout: '-1'",
                     "seconds"},
        BadArguments{"NoThreads", {"--threads=0", "DIR", "DIR"}, "--threads: '0'", "from 1 to"},
        BadArguments{
            "UnknownErrno", {"--fail=open:EFOO:1", "DIR", "DIR"}, "errno 'EFOO'", "such as EIO"},
        BadArguments{"UnknownOpToFail",
                     {"--fail=opn:EIO", "DIR", "DIR"},
                     "operation 'opn'",
                     "lookup getattr"},
        BadArguments{
            "UnknownOpToHang", {"--hang=opn:1", "DIR", "DIR"}, "operation 'opn'", "lookup getattr"},
        BadArguments{
            "Probability", {"--fail=open:EIO:2", "DIR", "DIR"}, "probability '2'", "from 0 to 1"},
        BadArguments{
            "NegativeHang", {"--hang=open:-1", "DIR", "DIR"}, "--hang open:-1", "seconds from 0"},
        BadArguments{"IncompleteRule", {"--fail=open", "DIR", "DIR"}, "--fail: 'open'", "OP:ERRNO"},
        BadArguments{
            "BufferedShortRead", {"--short-read=0.5", "DIR", "DIR"}, "--short-read", "--direct"},
        BadArguments{"UnknownOption", {"--bogus", "DIR", "DIR"}, "--bogus", "usage: lagfs"}),
    [](const auto& param_info) { return param_info.param.name; });

}  // namespace
}  // namespace cube::lagfs::testing
