#include "tests/parity/other_node.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>

#include "cache/base/sys.h"

namespace cube::parity {
namespace {

namespace sys = base::sys;

std::string questions(const std::string& base) { return base + "/questions"; }
std::string answers(const std::string& base) { return base + "/answers"; }

// Returns how many values the server has received so far, or -1 if the server does not answer.
long values_sent() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(std::atoi(getenv("PARITY_POOL"))));
  std::string text;
  constexpr std::string_view k_question = "stats\r\n";
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      send(fd, k_question.data(), k_question.size(), MSG_NOSIGNAL) > 0) {
    char buffer[4096];
    for (ssize_t n = 0; !text.ends_with("END\r\n") && (n = recv(fd, buffer, sizeof buffer, 0)) > 0;)
      text.append(buffer, static_cast<std::size_t>(n));
  }
  close(fd);
  const std::size_t at = text.find("STAT cmd_set ");
  return at == std::string::npos ? -1 : std::strtol(text.c_str() + at + 13, nullptr, 10);
}

bool read_and_share(const std::string& path) {
  const long before = values_sent();
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  char bytes[1 << 16];
  while (read(fd, bytes, sizeof bytes) > 0) {
  }
  close(fd);
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (values_sent() == before) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace

bool has_other_node() { return getenv("PARITY_POOL") != nullptr; }

void start_other_node(const std::string& base, const std::string& name) {
  for (const std::string& path : {questions(base), answers(base)}) {
    if (mkfifo(path.c_str(), 0600) != 0) std::perror("mkfifo"), std::abort();
  }
  setenv("CUBESHIM_CLUSTER",
         (std::string("memcached://127.0.0.1:") + getenv("PARITY_POOL")).c_str(), 1);
  setenv("CUBESHIM_CLUSTER_NAME", name.c_str(), 1);
  // The long deadline prevents lost hits on a busy machine.
  setenv("CUBESHIM_CLUSTER_DEADLINE", "2s", 1);
  setenv("CUBESHIM_CLUSTER_TRUST", "1", 1);
  if (fork() != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setenv("CUBESHIM_NAME", (name + "-other").c_str(), 1);
  setenv("CUBESHIM_STATS", "0", 1);
  setenv("PARITY_OTHER", base.c_str(), 1);
  execl("/proc/self/exe", "parity_tests", nullptr);
  _exit(127);
}

int run_other_node(const std::string& base) {
  while (true) {
    const int in = open(questions(base).c_str(), O_RDONLY | O_CLOEXEC);
    std::string path;
    char bytes[4096];
    for (ssize_t n = 0; (n = read(in, bytes, sizeof bytes)) > 0;)
      path.append(bytes, static_cast<std::size_t>(n));
    close(in);
    const char answer = read_and_share(path) ? 'y' : 'n';
    const int out = open(answers(base).c_str(), O_WRONLY | O_CLOEXEC);
    if (out < 0 || write(out, &answer, 1) != 1) return 1;
    close(out);
  }
}

bool share_by_other_node(const std::string& base, const std::string& path) {
  const long out = sys::open(questions(base).c_str(), O_WRONLY | O_CLOEXEC);
  if (sys::failed(out)) return false;
  sys::write(static_cast<int>(out), path.data(), path.size());
  sys::close(static_cast<int>(out));
  const long in = sys::open(answers(base).c_str(), O_RDONLY | O_CLOEXEC);
  char answer = 'n';
  if (sys::failed(in)) return false;
  sys::read(static_cast<int>(in), &answer, 1);
  sys::close(static_cast<int>(in));
  return answer == 'y';
}

}  // namespace cube::parity
