// lagfs [options] SOURCE MOUNTPOINT: mounts SOURCE, serves requests until the mount is removed or a
// signal ends the program, and unmounts.
#include <fcntl.h>
#include <fmt/format.h>
#include <fuse_lowlevel.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "daemon.h"
#include "device.h"
#include "operations.h"
#include "options.h"
#include "origin.h"

namespace cube::lagfs {
namespace {

constexpr int k_exit_failure = 1;
constexpr int k_exit_usage = 2;

// Each inode that the kernel knows needs an fd. Root may exceed the hard limit, up to the limit of
// the system.
void raise_descriptor_limit() {
  rlim_t most = 0;
  std::ifstream("/proc/sys/fs/nr_open") >> most;
  rlimit limit{most, most};
  if (most > 0 && setrlimit(RLIMIT_NOFILE, &limit) == 0) return;
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// The kernel enlarges an fd table by making a new table of twice the size. In a process with
// threads, it then waits 10 to 25 ms until no thread reads the old table (synchronize_rcu). Every
// open of the process waits as well, which adds latency that was not configured. So the table is
// enlarged to its full size while there is only one thread. It never shrinks.
void make_descriptor_table(int fd) {
  constexpr rlim_t k_most = 1 << 16;  // half a megabyte
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == 0) return;
  close(fcntl(fd, F_DUPFD_CLOEXEC, std::min(limit.rlim_cur, k_most) - 1));
}

// Escapes commas, because a comma ends a mount option.
std::string escape(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == ',' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::vector<std::string> session_arguments(const Options& options) {
  std::vector<std::string> arguments = {"lagfs", "-osubtype=lagfs",
                                        "-ofsname=" + escape(options.source)};
  if (geteuid() == 0) arguments.emplace_back("-oallow_other");
  if (options.max_read > 0) arguments.push_back(fmt::format("-omax_read={}", options.max_read));
  for (const auto& option : options.mount_options) arguments.push_back("-o" + option);
  return arguments;
}

sigset_t awaited_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, Workers::end_signal()})
    sigaddset(&set, signal);
  return set;
}

// Returns false when the session has ended, and true when this process was told to end it.
bool wait_for_end(const Origin& origin, const sigset_t& signals) {
  while (true) {
    const int signal = sigwaitinfo(&signals, nullptr);
    if (signal == Workers::end_signal()) return false;
    if (signal == SIGINT || signal == SIGTERM || signal == SIGHUP) return true;
    if (signal == SIGUSR1 && origin.options.foreground)
      fmt::print(stderr, "{}", origin.counters.text());
  }
}

// Unmounts lazily, because files can still be open. Operations on open files then fail, as after
// the loss of a server.
void unmount(fuse_session* session, const Options& options) {
  if (umount2(options.mountpoint.c_str(), MNT_DETACH) != 0) fuse_session_unmount(session);
}

int serve(const Options& options, const Ready& ready) {
  const int root_fd = open(options.source.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (root_fd < 0) {
    fmt::print(stderr, "lagfs: SOURCE '{}': {}\n", options.source, strerror(errno));
    return k_exit_usage;
  }
  raise_descriptor_limit();
  make_descriptor_table(root_fd);
  umask(0);  // the kernel has applied the client's umask
  signal(SIGPIPE, SIG_IGN);
  prctl(PR_SET_TIMERSLACK, 1);  // nanoseconds; threads inherit it
  const sigset_t signals = awaited_signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  // Never destroyed, because workers can use it until the process has ended.
  auto& origin = *new Origin(options, root_fd);
  origin.on_ready = ready;

  auto arguments = session_arguments(options);
  std::vector<char*> argv;
  for (auto& argument : arguments) argv.push_back(argument.data());
  fuse_args args = FUSE_ARGS_INIT(static_cast<int>(argv.size()), argv.data());
  fuse_session* session =
      fuse_session_new(&args, &operation_table(), sizeof(fuse_lowlevel_ops), &origin);
  // libfuse has reported which option it does not know
  if (session == nullptr) return k_exit_usage;
  if (fuse_session_mount(session, options.mountpoint.c_str()) != 0) return k_exit_failure;
  if (const int error = device::install(session)) {
    fmt::print(stderr, "lagfs: cannot talk to the fuse device: {}\n", strerror(error));
    return k_exit_failure;
  }
  if (chdir("/") != 0) return k_exit_failure;

  origin.workers.start(session, options.threads);
  if (wait_for_end(origin, signals)) unmount(session, options);
  // Exits without destructors, because workers might sleep in a configured hang. The kernel frees
  // everything that this process holds.
  fflush(nullptr);
  _exit(0);
}

int run(int argc, char** argv) {
  try {
    const auto parsed = parse_options(argc, argv);
    if (const auto* help = std::get_if<Help>(&parsed)) {
      fmt::print("{}", help->text);
      return 0;
    }
    const auto& options = std::get<Options>(parsed);
    if (options.foreground) return serve(options, {});
    return run_in_background([&](const Ready& ready) { return serve(options, ready); });
  } catch (const UsageError& error) {
    fmt::print(stderr, "lagfs: {}\n", error.what());
    return k_exit_usage;
  }
}

}  // namespace
}  // namespace cube::lagfs

int main(int argc, char** argv) { return cube::lagfs::run(argc, argv); }
