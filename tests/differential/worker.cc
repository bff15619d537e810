#include "tests/differential/worker.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "cache/base/sys.h"
#include "tests/differential/actor.h"
#include "tests/differential/player.h"

namespace cube::differ {
namespace {

namespace sys = base::sys;

bool receive(void* to, std::size_t n) {
  for (std::size_t done = 0; done < n;) {
    const long got = sys::read(k_command_fd, static_cast<char*>(to) + done, n - done);
    if (got == -EINTR) continue;
    if (got <= 0) return false;
    done += static_cast<std::size_t>(got);
  }
  return true;
}

// The peer is a child of this process, so that it belongs to the same job.
void start_peer() {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) std::abort();
  const pid_t parent = getpid();
  const pid_t peer = fork();
  if (peer == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    dup2(pair[1], k_peer_fd);
    close_range(3, k_peer_fd - 1, 0);
    close_range(k_peer_fd + 1, ~0U, 0);
    Actor::serve(k_peer_fd);
    _exit(0);
  }
  dup3(pair[0], k_peer_fd, O_CLOEXEC);
  close(pair[0]);
  close(pair[1]);
}

void warm(const Tree& tree) {
  for (const Entry& entry : entries()) {
    const bool is_file = entry.is_regular() || entry.type == EntryType::hard_link;
    if (!is_file || (entry.size > k_max_file && !has_large_files())) continue;
    const int fd = open((tree.root + "/" + std::string(entry.name)).c_str(), O_RDONLY | O_CLOEXEC);
    // A file that is served in blocks is only fetched when it is read.
    static char bytes[64 << 10];
    while (fd >= 0 && getenv("CUBESHIM_BLOCK") != nullptr && read(fd, bytes, sizeof bytes) > 0) {
    }
    if (fd >= 0) close(fd);
  }
}

Sequence parse(std::istream& text) {
  Sequence sequence;
  for (std::string line; std::getline(text, line);) {
    const auto op = parse_op(line);
    if (!op) std::abort();
    sequence.push_back(*op);
  }
  return sequence;
}

void set_limits() {
  struct ::rlimit limit {};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = k_fd_limit;
  setrlimit(RLIMIT_NOFILE, &limit);
  const ::rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  signal(SIGPIPE, SIG_IGN);
  umask(022);
}

}  // namespace

int run_worker() {
  set_limits();
  Log log(k_log_fd);
  start_peer();
  Actor peer(k_peer_fd), outsider(k_outsider_fd);
  Player player(log, peer, outsider);
  Task task;
  while (receive(&task, sizeof task)) {
    std::string text(task.length, '\0');
    if (!receive(text.data(), text.size())) break;
    std::istringstream lines(text);
    Tree tree;
    std::getline(lines, tree.root);
    std::getline(lines, tree.outside);
    std::getline(lines, tree.source);
    std::getline(lines, tree.start);
    log.clear();
    if (task.is_warm != 0) warm(tree);
    player.play(parse(lines), tree);
    if (sys::write(k_answer_fd, "x", 1) != 1) break;
  }
  return 0;
}

}  // namespace cube::differ
