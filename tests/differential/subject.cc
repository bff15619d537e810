#include "tests/differential/subject.h"

#include <fcntl.h>
#include <linux/mount.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/differential/actor.h"
#include "tests/differential/worker.h"

namespace cube::differ {
namespace {

constexpr int k_patience_ms = 60'000;

void must(bool there, const char* what) {
  if (there) return;
  std::perror(what);
  std::abort();
}

// Runs in the future worker. Copies the fd `from` to the fd `to`, which survives the exec.
void place(int from, int to) {
  if (from != to) dup2(from, to);
  fcntl(to, F_SETFD, 0);
}

int high(int fd) {
  const int copy = fcntl(fd, F_DUPFD_CLOEXEC, 600);
  close(fd);
  return copy;
}

bool write_all(int fd, const std::string& bytes) {
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t n = write(fd, bytes.data() + done, bytes.size() - done);
    if (n <= 0) return false;
    done += static_cast<std::size_t>(n);
  }
  return true;
}

// The mount exists only for this process and its children.
bool mount_read_only(const std::string& from, const std::string& to) {
  ::mount_attr read_only{
      .attr_set = MOUNT_ATTR_RDONLY, .attr_clr = 0, .propagation = 0, .userns_fd = 0};
  return unshare(CLONE_NEWNS) == 0 &&
         mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount(from.c_str(), to.c_str(), nullptr, MS_BIND, nullptr) == 0 &&
         syscall(SYS_mount_setattr, AT_FDCWD, to.c_str(), 0, &read_only, sizeof read_only) == 0;
}

// The disk is shared with the processes that have read the tree before.
std::string disk_of(const Settings& settings) { return settings.base + "/disk-" + settings.cache; }

}  // namespace

bool Subject::can_mount(const std::string& base) {
  // Requires root, because other users may read files in a pack that they may not read in the tree
  // (SEMANTICS, Packs).
  if (geteuid() != 0) return false;
  const pid_t child = fork();
  if (child == 0) _exit(mount_read_only(pack_source(base), packed_prefix(base)) ? 0 : 1);
  int status = 0;
  return waitpid(child, &status, 0) == child && status == 0;
}

Subject::Subject(Settings settings)
    : settings_(std::move(settings)),
      report_(settings_.base + "/report-" + settings_.name),
      log_memfd_(high(memfd_create("differ-log", MFD_CLOEXEC))) {
  must(ftruncate(log_memfd_, Log::k_capacity) == 0, "log");
  if (settings_.has_disk) std::filesystem::create_directories(disk_of(settings_));
  log_.emplace(log_memfd_);
}

Subject::~Subject() {
  stop();
  close(log_memfd_);
}

void Subject::start() {
  int commands[2], answers[2], outsider[2];
  must(pipe2(commands, O_CLOEXEC) == 0 && pipe2(answers, O_CLOEXEC) == 0, "pipe");
  must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, outsider) == 0, "socketpair");
  for (int* const fd :
       {&commands[0], &commands[1], &answers[0], &answers[1], &outsider[0], &outsider[1]})
    *fd = high(*fd);
  outsider_ = fork();
  if (outsider_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int fd = 3; fd < 1024; ++fd) {
      if (fd != outsider[1]) close(fd);
    }
    Actor::serve(outsider[1]);
    _exit(0);
  }
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    place(commands[0], k_command_fd);
    place(answers[1], k_answer_fd);
    place(log_memfd_, k_log_fd);
    place(outsider[0], k_outsider_fd);
    place(open("/dev/null", O_RDONLY), STDIN_FILENO);
    close_range(3, k_first_own_fd - 1, 0);
    unsetenv("CUBESHIM_JOB");
    if (is_plain() && !settings_.pack.empty() &&
        !mount_read_only(pack_source(settings_.base), packed_prefix(settings_.base)))
      _exit(126);
    if (!is_plain()) {
      const char* const library = getenv("DIFFER_LIBRARY");
      setenv("LD_PRELOAD", library != nullptr ? library : CUBESHIM_LIBRARY, 1);
      if (settings_.pack.empty())
        setenv("CUBESHIM_PREFIXES", (settings_.base + "/cover").c_str(), 1);
      if (!settings_.pack.empty())
        setenv(is_bucket() ? "CUBESHIM_BUCKETS" : "CUBESHIM_PACKS",
               (packed_prefix(settings_.base) + "=" + settings_.pack).c_str(), 1);
      if (is_bucket()) {
        setenv("CUBESHIM_COMMAND", DIFFER_GATEWAY, 1);
        setenv("AWS_TEST_ROOT", settings_.base.c_str(), 1);
        setenv("AWS_TEST_LOG", "/dev/null", 1);
      }
      setenv("CUBESHIM_MODE", settings_.mode.c_str(), 1);
      setenv("CUBESHIM_NAME", settings_.cache.c_str(), 1);
      setenv("CUBESHIM_CONSISTENCY", settings_.consistency.c_str(), 1);
      // A file in blocks reserves 2 MiB of the region, but uses little memory.
      const std::string usual = settings_.block.empty() ? "96M" : "4G";
      setenv("CUBESHIM_RAM", settings_.ram.empty() ? usual.c_str() : settings_.ram.c_str(), 1);
      const bool is_whole = settings_.block.empty() || has_large_files();
      setenv("CUBESHIM_MAX_FILE", is_whole ? std::to_string(k_max_file).c_str() : "1", 1);
      if (settings_.has_disk) setenv("CUBESHIM_DISK_DIR", disk_of(settings_).c_str(), 1);
      if (settings_.has_disk) setenv("CUBESHIM_DISK", "4G", 1);
      if (!settings_.block.empty()) setenv("CUBESHIM_BLOCK", settings_.block.c_str(), 1);
      setenv("CUBESHIM_STATS", report_.c_str(), 1);
      setenv("CUBESHIM_STATS_FORMAT", "json", 1);
    }
    execl("/proc/self/exe", "differ", k_worker_flag, nullptr);
    _exit(127);
  }
  must(pid_ > 0 && outsider_ > 0, "fork");
  close(commands[0]);
  close(answers[1]);
  close(outsider[0]);
  close(outsider[1]);
  commands_ = commands[1];
  answers_ = answers[0];
  played_ = 0;
  ++totals_.workers;
}

void Subject::send(const Tree& tree, bool is_warm, const Sequence& sequence) {
  if (pid_ < 0) start();
  ++played_;
  const std::string text = tree.root + "\n" + tree.outside + "\n" + tree.source + "\n" +
                           tree.start + "\n" + to_text(sequence);
  const Task task{is_warm ? 1U : 0U, static_cast<std::uint32_t>(text.size())};
  write_all(commands_, std::string(reinterpret_cast<const char*>(&task), sizeof task) + text);
}

std::string Subject::receive() {
  ::pollfd waiting{answers_, POLLIN, 0};
  char done = 0;
  const int ready = poll(&waiting, 1, k_patience_ms);
  if (ready == 1 && read(answers_, &done, 1) == 1) return std::string(log_->text());
  const std::string last = end(ready == 0);
  return std::string(log_->text()) + (ready == 0 ? "the run hangs\n" : last + "\n");
}

std::string Subject::end(bool kill_it) {
  close(commands_);
  close(answers_);
  if (kill_it) kill(pid_, SIGKILL);
  int status = 0;
  waitpid(pid_, &status, 0);
  kill(outsider_, SIGKILL);
  waitpid(outsider_, nullptr, 0);
  pid_ = outsider_ = -1;
  played_ = 0;
  add_report();
  // The next worker must not start with the remains of a crash. The gateway of a bucket removes its
  // region itself.
  if (!is_plain() && !is_bucket())
    unlink(("/dev/shm/cubeshim-" + std::to_string(geteuid()) + "-" + settings_.cache).c_str());
  if (WIFSIGNALED(status)) return "the run ended by signal " + std::to_string(WTERMSIG(status));
  return "the run ended with status " + std::to_string(WEXITSTATUS(status));
}

void Subject::stop() {
  if (pid_ > 0) end(false);
}

void Subject::clear_disk() {
  if (!settings_.has_disk) return;
  std::error_code error;
  std::filesystem::remove_all(disk_of(settings_), error);
  std::filesystem::create_directory(disk_of(settings_), error);
}

void Subject::add_report() {
  std::ifstream file(report_);
  for (std::string line; std::getline(file, line);) {
    const auto report = nlohmann::json::parse(line, nullptr, false);
    if (report.is_discarded()) continue;
    totals_.hits += report["hits"]["ram"].get<unsigned long>();
    totals_.misses += report["misses"].get<unsigned long>();
    totals_.materialized += report["materialized"].get<unsigned long>();
    totals_.block_reads += report["blocks"]["hits"].get<unsigned long>();
    totals_.block_disk += report["blocks"]["disk"].get<unsigned long>();
    totals_.full += report["bypassed"]["full"].get<unsigned long>();
  }
  unlink(report_.c_str());
}

}  // namespace cube::differ
