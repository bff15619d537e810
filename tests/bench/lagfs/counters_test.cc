// Exactly the requests that reached the origin are counted.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <barrier>
#include <thread>

#include "mount.h"

namespace cube::lagfs::testing {
namespace {

using Counts = std::map<std::string, std::uint64_t>;
using Counters = LagfsTest;

// Loads a file like a data loader: open, fstat, read to the end, close.
void load(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY);
  ASSERT_GE(fd, 0);
  struct stat st {};
  ASSERT_EQ(fstat(fd, &st), 0);
  std::string buffer(1 << 20, '\0');
  while (read(fd, buffer.data(), buffer.size()) > 0) {
  }
  ASSERT_EQ(close(fd), 0);
}

TEST_F(Counters, AreExactForAFreshBufferedFile) {
  write_file(mount_.source("file"), random_bytes(110'000, 1));
  mount_.start(fast());
  load(mount_.at("file"));
  EXPECT_EQ(mount_.counters(), (Counts{{"lookup", 1},
                                       {"open", 1},
                                       {"read", 1},
                                       {"flush", 1},
                                       {"release", 1},
                                       {"total", 5},
                                       {"data_files", 5}}));
  EXPECT_EQ(mount_.json_number("read", "bytes"), 110'000U);
}

TEST_F(Counters, AreExactForAFreshDirectFile) {
  write_file(mount_.source("file"), random_bytes(110'000, 1));
  mount_.start(fast({"--direct"}));
  load(mount_.at("file"));
  // The second read finds the end of the file. Without a page cache, the kernel sends this read to
  // lagfs.
  EXPECT_EQ(mount_.counters(), (Counts{{"lookup", 1},
                                       {"open", 1},
                                       {"read", 2},
                                       {"flush", 1},
                                       {"release", 1},
                                       {"total", 6},
                                       {"data_files", 6}}));
  EXPECT_EQ(mount_.json_number("read", "bytes"), 110'000U);
}

TEST_F(Counters, IncludeEveryEarlierRequest) {
  // close() does not wait for RELEASE: without Workers::settle(), a round sometimes misses one.
  constexpr int k_threads = 16;
  constexpr int k_opens = 4;
  constexpr int k_rounds = 400;
  write_file(mount_.source("file"), "data");
  mount_.start(fast());
  load(mount_.at("file"));
  std::barrier gate(k_threads + 1);
  std::vector<std::jthread> threads;
  for (int i = 0; i < k_threads; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < k_rounds; ++round) {
        gate.arrive_and_wait();
        for (int n = 0; n < k_opens; ++n) close(open(mount_.at("file").c_str(), O_RDONLY));
        gate.arrive_and_wait();
      }
    });
  }
  for (int round = 0; round < k_rounds; ++round) {
    mount_.reset();
    gate.arrive_and_wait();
    gate.arrive_and_wait();
    EXPECT_EQ(
        mount_.counters(),
        (Counts{{"open", 64}, {"flush", 64}, {"release", 64}, {"total", 192}, {"data_files", 192}}))
        << "round " << round;
  }
}

TEST_F(Counters, AreZeroAfterReset) {
  write_file(mount_.source("file"), "data");
  mount_.start(fast());
  load(mount_.at("file"));
  ASSERT_FALSE(mount_.counters().empty());
  mount_.reset();
  EXPECT_EQ(mount_.counters(), Counts{});
  EXPECT_EQ(mount_.json_number("read", "bytes"), 0U);
}

TEST_F(Counters, DistinguishDataFilesFromTheRest) {
  mkdir(mount_.source("dir").c_str(), 0755);
  write_file(mount_.source("dir/file"), "data");
  mount_.start(fast());

  EXPECT_EQ(list(mount_.at("dir")), std::vector<std::string>{"file"});
  struct stat st {};
  EXPECT_EQ(stat(mount_.at("dir/absent").c_str(), &st), -1);
  EXPECT_EQ(mount_.counters().count("data_files"), 0U);
  EXPECT_GT(mount_.counters()["other"], 0U);
  EXPECT_EQ(mount_.json_number("lookup", "other"), 2U);
  EXPECT_EQ(mount_.json_number("lookup", "errors"), 1U);

  mount_.reset();
  EXPECT_EQ(stat(mount_.at("dir/file").c_str(), &st), 0);
  load(mount_.at("dir/file"));
  EXPECT_EQ(rename(mount_.at("dir/file").c_str(), mount_.at("dir/moved").c_str()), 0);
  EXPECT_EQ(unlink(mount_.at("dir/moved").c_str()), 0);
  EXPECT_EQ(mount_.json_number("lookup", "data_files"), 1U);
  EXPECT_EQ(mount_.json_number("lookup", "other"), 1U) << "of the new name, which was absent";
  for (const char* op : {"open", "read", "flush", "release", "rename", "unlink"}) {
    EXPECT_EQ(mount_.json_number(op, "data_files"), 1U) << op;
    EXPECT_EQ(mount_.json_number(op, "other"), 0U) << op;
  }
  EXPECT_EQ(mount_.json_number("total", "data_files"), 7U);
  EXPECT_EQ(mount_.json_number("total", "other"), 1U);
}

TEST_F(Counters, CountBytesWritten) {
  mount_.start(fast());
  write_file(mount_.at("file"), random_bytes(300'000, 2));
  EXPECT_EQ(mount_.json_number("write", "bytes"), 300'000U);
  EXPECT_EQ(mount_.json_number("create", "data_files"), 1U);
}

TEST_F(Counters, CountForgetOutsideTheTotal) {
  write_file(mount_.source("file"), "data");
  mount_.start(fast());
  struct stat st {};
  ASSERT_EQ(stat(mount_.at("file").c_str(), &st), 0);
  ASSERT_EQ(unlink(mount_.at("file").c_str()), 0);
  Counts counts;
  // The kernel sends FORGET soon, but not immediately.
  for (int tries = 0; tries < 1000 && counts["forget"] == 0; ++tries) counts = mount_.counters();
  EXPECT_EQ(counts["forget"], 1U);
  EXPECT_EQ(counts["total"], 2U) << "lookup and unlink";
  mount_.reset();
  EXPECT_EQ(mount_.counters(), Counts{});
}

TEST_F(Counters, LeaveTheirOwnFilesOut) {
  mount_.start(
      fast({"--attr-timeout=0", "--entry-timeout=0", "--fail=open:EIO", "--fail=lookup:EIO"}));
  mount_.reset();
  for (int i = 0; i < 3; ++i) mount_.json();
  EXPECT_EQ(list(mount_.at(".lagfs")),
            (std::vector<std::string>{"counters", "counters.json", "held", "reset", "script"}));
  EXPECT_EQ(mount_.counters(), Counts{});
}

TEST_F(Counters, AreHiddenFromListings) {
  mkdir(mount_.source(".lagfs").c_str(), 0755);
  write_file(mount_.source("file"), "data");
  for (const Arguments& arguments : {Arguments{}, Arguments{"--readdirplus"}}) {
    mount_.start(fast(arguments));
    EXPECT_EQ(list(mount_.at()), std::vector<std::string>{"file"});
    EXPECT_EQ(rmdir(mount_.at(".lagfs").c_str()), -1);
    EXPECT_EQ(unlink(mount_.at(".lagfs/reset").c_str()), -1);
    EXPECT_EQ(mkdir(mount_.at(".lagfs/new").c_str(), 0755), -1);
    EXPECT_EQ(rename(mount_.at("file").c_str(), mount_.at(".lagfs/file").c_str()), -1);
    mount_.stop();
  }
}

TEST_F(Counters, TakeANewSnapshotAtEachReadFromOffsetZero) {
  mount_.start(fast());
  const int fd = open(mount_.at(".lagfs/counters").c_str(), O_RDONLY);
  char buffer[4096];
  const ssize_t size = pread(fd, buffer, sizeof(buffer), 0);
  const std::string before(buffer, static_cast<std::size_t>(size));
  struct stat st {};
  EXPECT_EQ(stat(mount_.at("absent").c_str(), &st), -1);
  const std::string after(buffer, static_cast<std::size_t>(pread(fd, buffer, sizeof(buffer), 0)));
  EXPECT_NE(before.find("lookup 0\n"), std::string::npos) << before;
  EXPECT_NE(after.find("lookup 1\n"), std::string::npos) << after;
  close(fd);
}

}  // namespace
}  // namespace cube::lagfs::testing
