// cubeshim pool start: checks the conditions, runs memcached in the background, and waits until it
// answers.
#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "cache/base/error_text.h"
#include "cache/base/memory/memory_limits.h"
#include "cache/base/unique_fd.h"
#include "shim/cli/complaint.h"
#include "shim/cli/pool/pool.h"
#include "shim/cli/pool/pool_storage.h"
#include "shim/cli/run/program_file.h"
#include "shim/cli/settings.h"

namespace cube::cli {
namespace {

constexpr const char* k_loopback = "127.0.0.1";
constexpr std::uint64_t k_mib = 1 << 20;
// The largest item must fit into half of the memory. extstore writes pages of 64 MiB, and needs
// several free pages for compaction.
constexpr std::uint64_t k_least_memory = 64 * k_mib, k_least_storage = 512 * k_mib;
constexpr rlim_t k_connections = 8192, k_other_fds = 128;
constexpr int k_start_ms = 60000, k_pause_ms = 20;

// Returns the first line that a program prints, or an empty string if the program cannot be run.
std::string first_line_of(const std::string& program, const char* flag) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(
      popen(fmt::format("'{}' {} 2>&1", program, flag).c_str(), "re"), pclose);
  char line[256] = "";
  if (pipe == nullptr || std::fgets(line, sizeof line, pipe.get()) == nullptr) return {};
  std::string text = line;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

bool is_address(const std::string& text) {
  in6_addr room{};
  return inet_pton(AF_INET, text.c_str(), &room) == 1 ||
         inet_pton(AF_INET6, text.c_str(), &room) == 1;
}

// Returns the unprivileged account under which root runs memcached. Empty if memcached runs as this
// user.
std::string account() {
  if (geteuid() != 0) return {};
  for (const char* const name : {"memcache", "memcached", "nobody"})
    if (getpwnam(name) != nullptr) return name;
  return "root";
}

struct Plan {
  std::vector<std::string> words;
  PoolState state;
};

// Determines the path and the size of the file on disk. Returns the reason if that fails.
std::string storage_of(const base::Config& config, const PoolWish& wish, std::string& path,
                       std::uint64_t& size) {
  struct ::stat st {};
  struct statvfs room {};
  if (stat(wish.nvme.c_str(), &st) != 0)
    return fmt::format("--nvme {}: {}", wish.nvme, base::text_of_error(errno));
  if (!S_ISDIR(st.st_mode)) return fmt::format("--nvme {}: not a directory", wish.nvme);
  if (access(wish.nvme.c_str(), W_OK) != 0 || statvfs(wish.nvme.c_str(), &room) != 0)
    return fmt::format("--nvme {}: {}", wish.nvme, base::text_of_error(errno));
  if (wish.nvme.find_first_of(":,") != std::string::npos)
    return fmt::format("--nvme {}: memcached accepts no ':' or ',' there", wish.nvme);
  const std::uint64_t free = std::uint64_t{room.f_bavail} * room.f_frsize;
  size = free / 5 * 4;
  if (!wish.nvme_size.empty() && !base::parse_bytes(wish.nvme_size, size))
    return fmt::format("--nvme-size \"{}\" is not usable: it takes a size such as 500G",
                       wish.nvme_size);
  if (size < k_least_storage)
    return fmt::format("--nvme: {} is too little, it takes at least {}", in_units(size),
                       in_units(k_least_storage));
  if (size > free)
    return fmt::format("--nvme {}: {} are wanted and {} are free", wish.nvme, in_units(size),
                       in_units(free));
  path = fmt::format("{}/cubeshim-pool-{}", wish.nvme, config.name);
  return {};
}

// Completes `plan`. Returns an error line, or an empty string on success.
std::string make_plan(const base::Config& config, const PoolWish& wish, Plan& plan) {
  std::uint64_t memory = 0;
  if (wish.memory.empty())
    return "--memory is missing: it says how much memory memcached takes, such as 64G";
  if (!base::parse_bytes(wish.memory, memory))
    return fmt::format("--memory \"{}\" is not usable: it takes a size such as 64G", wish.memory);
  if (memory < k_least_memory)
    return fmt::format("--memory {}: it takes at least {}", wish.memory, in_units(k_least_memory));
  if (const std::uint64_t available = base::available_memory(); memory > available)
    return fmt::format("--memory {}: {} are free on this node", wish.memory, in_units(available));
  const std::string address = wish.listen.empty() ? k_loopback : wish.listen;
  if (!is_address(address))
    return fmt::format(
        "--listen \"{}\" is not usable: it takes an address of this node, such as 10.0.0.5",
        wish.listen);
  if (!wish.nvme_size.empty() && wish.nvme.empty()) return "--nvme-size needs --nvme DIRECTORY";
  const std::string program = find_program("memcached");
  if (program.empty())
    return "memcached is not installed: apt install memcached, or dnf install memcached";
  const std::string version = first_line_of(program, "-V");
  if (!version.starts_with("memcached ") ||
      !is_new_memcached(version.substr(version.find(' ') + 1)))
    return fmt::format("{} is {}, but 1.6.18 or later is needed", program,
                       version.empty() ? "no memcached" : version);
  rlimit files{};
  rlim_t connections = k_connections;
  // If root starts memcached, memcached raises the limit.
  if (geteuid() != 0 && getrlimit(RLIMIT_NOFILE, &files) == 0 &&
      files.rlim_max < k_connections + k_other_fds)
    connections = std::max<rlim_t>(files.rlim_max, 2 * k_other_fds) - k_other_fds;
  plan.words = {program,
                "-M",
                "-m",
                std::to_string(memory / k_mib),
                "-I",
                "17m",
                "-t",
                "4",
                "-c",
                std::to_string(connections),
                "-X",
                "-o",
                "slab_chunk_max=16384",
                "-l",
                address,
                "-p",
                std::to_string(wish.port),
                "-U",
                "0"};
  if (const std::string user = account(); !user.empty())
    plan.words.insert(plan.words.end(), {"-u", user});
  plan.state.address = address;
  plan.state.port = wish.port;
  if (wish.nvme.empty()) return {};
  std::uint64_t size = 0;
  if (std::string why = storage_of(config, wish, plan.state.storage, size); !why.empty())
    return why;
  plan.words.insert(plan.words.end(), {"-o", fmt::format("ext_path={}:{}M,ext_wbuf_size=32",
                                                         plan.state.storage, size / k_mib)});
  return {};
}

// Starts memcached in a new session. The child writes its ProcessId and then the errors of
// memcached to the pipe `trouble`. Returns 0 if memcached cannot be started.
pid_t launch(const std::vector<std::string>& words, const PoolStorage& storage,
             base::UniqueFd& trouble) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return 0;
  trouble = base::UniqueFd(ends[0]);
  const base::UniqueFd tell(ends[1]);
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid != 0) return std::max(pid, 0);
  setsid();
  const base::UniqueFd nothing(open("/dev/null", O_RDWR | O_CLOEXEC));
  dup2(nothing.get(), STDIN_FILENO);
  dup2(nothing.get(), STDOUT_FILENO);
  char id[96];
  const std::size_t n = base::format_process_id(base::current_process(), id, sizeof id - 1);
  id[n] = '\n';
  [[maybe_unused]] const auto written = write(tell.get(), id, n + 1);
  dup2(tell.get(), STDERR_FILENO);
  storage.keep_at_exec();
  execv(arguments[0], arguments.data());
  fmt::print(stderr, "{}\n", base::text_of_error(errno));
  _exit(127);
}

// Reads the available text or, if `to_end` is true, all text up to the end.
void read_trouble(int fd, bool to_end, std::string& text) {
  fcntl(fd, F_SETFL, to_end ? 0 : O_NONBLOCK);
  char some[1024];
  for (ssize_t n = 0; (n = read(fd, some, sizeof some)) > 0;)
    text.append(some, static_cast<std::size_t>(n));
}

// Waits until the memcached with this PID answers. Returns false if memcached has ended or does not
// answer in time.
bool comes_up(pid_t pid, const PoolState& state, int fd, std::string& text, bool& has_ended) {
  for (int waited = 0; waited < k_start_ms; waited += k_pause_ms) {
    has_ended = waitpid(pid, nullptr, WNOHANG) == pid;
    read_trouble(fd, has_ended, text);
    if (has_ended) return false;
    const auto stats = ask_memcached(state.address, state.port, "stats", 1000);
    if (stats && stats->contains("pid") && stats->at("pid") == std::to_string(pid)) return true;
    poll(nullptr, 0, k_pause_ms);
  }
  return false;
}

void tell_use(const Plan& plan) {
  const bool is_any = plan.state.address == "0.0.0.0" || plan.state.address == "::";
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  fmt::print(
      "for the jobs, the same on all nodes, with all pools between "
      "commas:\nCUBESHIM_CLUSTER=memcached://{}\n",
      with_port(is_any ? host : plan.state.address, plan.state.port));
  if (plan.state.address.starts_with("127.") || plan.state.address == "::1")
    fmt::print("only this node can reach it; --listen ADDRESS opens it to others\n");
  else
    fmt::print(
        "anyone who reaches this port can read and change what it holds: keep it in a private "
        "network\n");
}

}  // namespace

bool is_new_memcached(std::string_view version) {
  const auto parts = split_words(version, "._-+~ ");
  std::array<unsigned, 3> numbers{};
  for (std::size_t i = 0; i < numbers.size() && i < parts.size(); ++i)
    std::from_chars(parts[i].data(), parts[i].data() + parts[i].size(), numbers[i]);
  constexpr std::array<unsigned, 3> k_least{1, 6,
                                            18};  // the meta protocol that the cluster tier needs
  return numbers >= k_least;
}

int start_pool(const base::Config& config, const PoolWish& wish) {
  if (const auto running = PoolState::read(config))
    return complain(
        1,
        fmt::format("pool {} is already running at {} (process {}): cubeshim pool stop ends it",
                    config.name, with_port(running->address, running->port), running->process.pid));
  Plan plan;
  if (const std::string why = make_plan(config, wish, plan); !why.empty()) return complain(1, why);
  PoolStorage storage;
  if (!plan.state.storage.empty()) {
    // The account must own the file, because memcached opens it after switching to this account.
    if (const std::string why = storage.take(plan.state.storage, account()); !why.empty())
      return complain(1, why);
  }
  fmt::print("{}\n", fmt::join(plan.words, " "));
  base::UniqueFd trouble;
  const pid_t pid = launch(plan.words, storage, trouble);
  if (pid == 0)
    return complain(1, fmt::format("cannot start a process: {}", base::text_of_error(errno)));
  std::string text;
  bool has_ended = false;
  const bool is_up = comes_up(pid, plan.state, trouble.get(), text, has_ended);
  auto lines = split_words(text, "\n");
  const bool has_id = !lines.empty() && base::parse_process_id(lines[0], plan.state.process);
  if (is_up && has_id && plan.state.write(config)) {
    tell_use(plan);
    return 0;
  }
  const int error = errno;
  if (!has_ended) kill(pid, SIGKILL);
  if (has_id) lines.erase(lines.begin());
  storage.remove();
  if (is_up)
    return complain(1, fmt::format("cannot write {}: {}", PoolState::path_of(config),
                                   base::text_of_error(error)));
  if (!has_ended)
    return complain(1,
                    fmt::format("memcached does not answer at {} within {} s",
                                with_port(plan.state.address, plan.state.port), k_start_ms / 1000));
  return complain(1, fmt::format("memcached exited immediately: {}",
                                 lines.empty() ? "it does not say why"
                                               : fmt::format("{}", fmt::join(lines, "; "))));
}

}  // namespace cube::cli
