#include "mount.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <sstream>

namespace cube::lagfs::testing {
namespace {

std::string binary() {
  const char* from_environment = getenv("LAGFS_BINARY");
  return from_environment != nullptr ? from_environment : LAGFS_BINARY;
}

// The child's output goes to files, so that a daemon that keeps them open cannot block this
// process.
pid_t spawn(const Arguments& arguments, const std::string& out, const std::string& err) {
  Arguments all = {binary()};
  all.insert(all.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (auto& argument : all) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    dup2(open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDOUT_FILENO);
    dup2(open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
    execv(argv[0], argv.data());
    _exit(127);
  }
  return child;
}

int wait_for(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

}  // namespace

Arguments fast(Arguments more) {
  Arguments all = {"--lookup-us=0",  "--open-us=0",  "--read-us=0",         "--getattr-us=0",
                   "--readdir-us=0", "--other-us=0", "--attr-timeout=3600", "--entry-timeout=3600"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

Outcome run_lagfs(const Arguments& arguments) {
  const TemporaryDirectory scratch;
  const std::string out = scratch.path() + "/out";
  const std::string err = scratch.path() + "/err";
  const int status = wait_for(spawn(arguments, out, err));
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(out), read_file(err)};
}

TemporaryDirectory::TemporaryDirectory() {
  std::string name = (std::filesystem::temp_directory_path() / "lagfs_test.XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) ADD_FAILURE() << "mkdtemp: " << strerror(errno);
  path_ = name;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

Mount::~Mount() {
  // Unmounts everything, because remove_all() would reach the source through a mount that a failed
  // test has left.
  while (umount2(target_.path().c_str(), MNT_DETACH) == 0) {
  }
  if (child_ > 0) {
    kill(child_, SIGKILL);
    wait_for(child_);
  }
}

void Mount::start(const Arguments& arguments) {
  Arguments all = arguments;
  all.insert(all.end(), {source_.path(), target_.path()});
  const Outcome outcome = run_lagfs(all);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  ASSERT_EQ(outcome.out + outcome.err, "") << "lagfs must be silent when all is well";
}

void Mount::start_in_foreground(const Arguments& arguments) {
  Arguments all = arguments;
  all.insert(all.end(), {"--foreground", source_.path(), target_.path()});
  child_ = spawn(all, scratch_.path() + "/out", scratch_.path() + "/err");
  // The kernel reports every change of the mount table. The time limit only serves to notice a dead
  // child.
  const int table = open("/proc/self/mounts", O_RDONLY | O_CLOEXEC);
  while (!is_mounted()) {
    ASSERT_EQ(waitpid(child_, nullptr, WNOHANG), 0) << child_stderr();
    pollfd change{table, POLLPRI, 0};
    poll(&change, 1, 100);
  }
  close(table);
}

void Mount::stop() {
  ASSERT_EQ(umount2(target_.path().c_str(), 0), 0) << strerror(errno);
  if (child_ > 0) {
    const int status = wait_for_child();
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status << child_stderr();
  }
}

bool Mount::is_mounted() const {
  return read_file("/proc/self/mounts").find(" " + target_.path() + " fuse.lagfs ") !=
         std::string::npos;
}

int Mount::wait_for_child() {
  const int status = wait_for(child_);
  child_ = -1;
  return status;
}

std::string Mount::child_stderr() const { return read_file(scratch_.path() + "/err"); }

std::map<std::string, std::uint64_t> Mount::counters() const {
  std::istringstream text(read_file(at(".lagfs/counters")));
  std::map<std::string, std::uint64_t> result;
  std::string op;
  std::uint64_t count = 0;
  while (text >> op >> count) {
    if (count > 0) result[op] = count;
  }
  return result;
}

std::string Mount::json() const { return read_file(at(".lagfs/counters.json")); }

std::uint64_t Mount::json_number(const std::string& op, const std::string& field) const {
  const std::string text = json();
  const auto object = text.find("\"" + op + "\": {");
  const auto end = text.find('}', object);
  const auto key = text.find("\"" + field + "\": ", object);
  if (object == std::string::npos || key == std::string::npos || key > end) {
    ADD_FAILURE() << op << "." << field << " is not in " << text;
    return 0;
  }
  return strtoull(text.c_str() + key + field.size() + 4, nullptr, 10);
}

void Mount::reset() const {
  const int fd = open(at(".lagfs/reset").c_str(), O_WRONLY);
  ASSERT_GE(fd, 0) << strerror(errno);
  EXPECT_EQ(write(fd, "1", 1), 1);
  close(fd);
}

void LagfsTest::SetUp() {
  const int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
  if (fd < 0) GTEST_SKIP() << "/dev/fuse: " << strerror(errno);
  close(fd);
}

std::string random_bytes(std::size_t size, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string data(size, '\0');
  for (char& c : data) c = static_cast<char>(random());
  return data;
}

void write_file(const std::string& path, const std::string& data) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  ASSERT_GE(fd, 0) << path << ": " << strerror(errno);
  std::size_t done = 0;
  while (done < data.size()) {
    const ssize_t n = write(fd, data.data() + done, data.size() - done);
    ASSERT_GT(n, 0) << path << ": " << strerror(errno);
    done += static_cast<std::size_t>(n);
  }
  ASSERT_EQ(close(fd), 0) << path << ": " << strerror(errno);
}

std::string read_file(const std::string& path, std::size_t chunk) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    ADD_FAILURE() << path << ": " << strerror(errno);
    return {};
  }
  std::string data;
  std::string buffer(chunk, '\0');
  ssize_t n = 0;
  while ((n = read(fd, buffer.data(), chunk)) > 0)
    data.append(buffer, 0, static_cast<std::size_t>(n));
  if (n < 0) ADD_FAILURE() << path << ": " << strerror(errno);
  close(fd);
  return data;
}

std::vector<std::string> list(const std::string& path) {
  std::vector<std::string> names;
  DIR* stream = opendir(path.c_str());
  if (stream == nullptr) {
    ADD_FAILURE() << path << ": " << strerror(errno);
    return names;
  }
  while (const dirent* item = readdir(stream)) {
    const std::string name = item->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  closedir(stream);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace cube::lagfs::testing
