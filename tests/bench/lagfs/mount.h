// A lagfs mount for a test: a temporary source and mount point, the command, and its counters.
//
// Thread safety: one thread owns a Mount; any thread may use the files below its paths.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace cube::lagfs::testing {

using Arguments = std::vector<std::string>;

// Adds options that turn off latency and keep attributes from expiring in the middle of a slow
// test.
Arguments fast(Arguments more = {});

struct Outcome {
  int exit_code;
  std::string out;
  std::string err;
};
// Runs lagfs with these arguments until the command returns.
Outcome run_lagfs(const Arguments& arguments);

// A directory that deletes itself.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

class Mount {
 public:
  Mount() = default;
  ~Mount();

  // Mounts in the background, as a user would.
  void start(const Arguments& arguments);
  // Mounts in the foreground, as a child of this process; returns when the kernel has the mount.
  void start_in_foreground(const Arguments& arguments);
  // umount(8), then waits for the foreground child, if there is one.
  void stop();

  std::string source(const std::string& name = "") const { return source_.path() + "/" + name; }
  std::string at(const std::string& name = "") const { return target_.path() + "/" + name; }
  std::string target() const { return target_.path(); }
  bool is_mounted() const;

  pid_t child() const { return child_; }
  int wait_for_child();  // its wait status
  std::string child_stderr() const;

  // The counters that are not zero.
  std::map<std::string, std::uint64_t> counters() const;
  std::string json() const;
  // The number at "op"."field" of the JSON form.
  std::uint64_t json_number(const std::string& op, const std::string& field) const;
  void reset() const;

 private:
  TemporaryDirectory source_;
  TemporaryDirectory target_;
  TemporaryDirectory scratch_;
  pid_t child_ = -1;
};

class LagfsTest : public ::testing::Test {
 protected:
  void SetUp() override;
  Mount mount_;
};

// --- files, with plain system calls; a failure is a test failure

std::string random_bytes(std::size_t size, std::uint64_t seed);
void write_file(const std::string& path, const std::string& data);
std::string read_file(const std::string& path, std::size_t chunk = 1 << 20);
std::vector<std::string> list(const std::string& path);
double seconds_for(const auto& action);

}  // namespace cube::lagfs::testing

#include <time.h>

double cube::lagfs::testing::seconds_for(const auto& action) {
  timespec begin{};
  timespec end{};
  clock_gettime(CLOCK_MONOTONIC, &begin);
  action();
  clock_gettime(CLOCK_MONOTONIC, &end);
  return static_cast<double>(end.tv_sec - begin.tv_sec) +
         static_cast<double>(end.tv_nsec - begin.tv_nsec) / 1e9;
}
