#include "cache/bucket/gateway_start.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <string_view>
#include <utility>
#include <vector>

#include "cache/base/error_text.h"
#include "cache/base/hash.h"
#include "cache/base/log.h"
#include "cache/base/process/block_signals.h"
#include "cache/base/sys.h"
#include "cache/base/unique_fd.h"

namespace cube::cache::gateway_start {
namespace {

namespace sys = base::sys;

struct Prepared {
  std::string command;
  std::vector<std::string> texts;
  std::vector<const char*> environment;  // pointers to `texts`; null-terminated
};

// Never freed, because start() may be called even after all destructors have run.
constinit std::atomic<const Prepared*> g_prepared{nullptr};

std::string_view name_of(const char* variable) {
  const std::string_view text(variable);
  return text.substr(0, text.find('='));
}

// These variables name the store, the way to reach it, and the credentials.
bool is_of_store(std::string_view name) {
  static constexpr std::string_view k_beginnings[] = {"AWS_", "SSL_CERT_", "CUBESHIM_S3_"};
  static constexpr std::string_view k_names[] = {
      "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy",
      "ALL_PROXY",  "no_proxy",    "NO_PROXY",   "HOME",        "CURL_CA_BUNDLE"};
  return name != "CUBESHIM_S3_TIMEOUT" &&
         (std::ranges::any_of(k_beginnings,
                              [&](const auto& beginning) { return name.starts_with(beginning); }) ||
          std::ranges::find(k_names, name) != std::end(k_names));
}

// Creates a child that sends no signal when it ends, and that only a wait with __WALL finds.
// CLONE_UNTRACED keeps a debugger from treating the child as a thread of the program.
long fork_quietly() { return sys::raw(SYS_clone, CLONE_UNTRACED); }

void close_all_but(int kept) {
  constexpr unsigned k_first = STDERR_FILENO + 1, k_last = ~0U;
  const auto before = static_cast<unsigned>(kept) - 1;
  const auto after = static_cast<unsigned>(kept) + 1;
  const bool is_closed = (kept == static_cast<int>(k_first) ||
                          !sys::failed(sys::raw(SYS_close_range, k_first, before, 0))) &&
                         !sys::failed(sys::raw(SYS_close_range, after, k_last, 0));
  if (is_closed) return;
  constexpr int k_most = 65536;
  for (int fd = static_cast<int>(k_first); fd < k_most; ++fd) {
    if (fd != kept) sys::raw(SYS_close, fd);
  }
}

// Executes the command. On failure, writes the errno to the pipe. Makes only raw system calls,
// because this is the forked child of a process that may have several threads.
[[noreturn]] void become_gateway(const Prepared& prepared, int pipe) {
  const long null = sys::open("/dev/null", O_RDWR);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    sys::dup3(static_cast<int>(null), fd, 0);
  close_all_but(pipe);
  sys::raw(SYS_chdir, sys::arg("/"));
  const std::uint64_t no_signals = 0;
  sys::raw(SYS_rt_sigprocmask, 2 /* SIG_SETMASK */, sys::arg(&no_signals), 0, sizeof no_signals);
  std::uint64_t all_processors[16];
  for (auto& word : all_processors) word = ~0ULL;
  sys::raw(SYS_sched_setaffinity, 0, sizeof all_processors, sys::arg(all_processors));
  const char* const arguments[] = {prepared.command.c_str(), "gateway", nullptr};
  const long error = sys::raw(SYS_execve, sys::arg(prepared.command.c_str()), sys::arg(arguments),
                              sys::arg(prepared.environment.data()));
  sys::write(pipe, &error, sizeof error);
  sys::raw(SYS_exit_group, 127);
  __builtin_unreachable();
}

}  // namespace

bool is_passed_on(const char* variable) {
  static constexpr std::string_view k_names[] = {"PATH", "USER", "TMPDIR", "TZ", "LANG"};
  const std::string_view name = name_of(variable);
  return name.starts_with("CUBESHIM_") || is_of_store(name) ||
         std::ranges::find(k_names, name) != std::end(k_names);
}

std::uint64_t store_mark(const char* const* environment) {
  // A sum of hashes does not depend on the order of the variables.
  std::uint64_t mark = 0;
  for (; *environment != nullptr; ++environment) {
    if (is_of_store(name_of(*environment))) mark += base::hash_path(*environment);
  }
  return mark;
}

namespace {

void publish(std::string command, std::vector<std::string> texts) {
  auto* const prepared = new Prepared{std::move(command), std::move(texts), {}};
  for (const auto& text : prepared->texts) prepared->environment.push_back(text.c_str());
  prepared->environment.push_back(nullptr);
  g_prepared.store(prepared, std::memory_order_release);
}

int start_prepared(const Prepared& prepared) {
  // A signal handler of the program must not run in the child.
  const base::BlockSignals block;
  int pipe[2] = {-1, -1};
  if (const long made = sys::raw(SYS_pipe2, sys::arg(pipe), O_CLOEXEC); sys::failed(made))
    return static_cast<int>(-made);
  const base::UniqueFd result(pipe[0]);
  base::UniqueFd told(pipe[1]);
  const long child = fork_quietly();
  if (sys::failed(child)) return static_cast<int>(-child);
  if (child == 0) {
    sys::raw(SYS_setsid);
    // The second fork makes the gateway a child of init that is not the leader of its session.
    if (fork_quietly() == 0) become_gateway(prepared, told.get());
    sys::raw(SYS_exit_group, 0);
  }
  told.reset();
  long error = 0;
  // The read ends when the gateway's exec or death closes the pipe.
  const long got = sys::read(result.get(), &error, sizeof error);
  sys::raw(SYS_wait4, child, 0, __WALL, 0);
  return got == static_cast<long>(sizeof error) ? static_cast<int>(-error) : 0;
}

}  // namespace

void prepare(std::string command, const char* const* environment) {
  std::vector<std::string> texts;
  for (; *environment != nullptr; ++environment) {
    if (is_passed_on(*environment)) texts.emplace_back(*environment);
  }
  publish(std::move(command), std::move(texts));
}

void use_region(const std::string& directory, const std::string& name) {
  const Prepared* const former = g_prepared.load(std::memory_order_acquire);
  if (former == nullptr) return;
  constexpr std::string_view k_directory = "CUBESHIM_RAM_DIR", k_name = "CUBESHIM_NAME";
  std::vector<std::string> texts = former->texts;
  std::erase_if(texts, [&](const std::string& text) {
    return name_of(text.c_str()) == k_directory || name_of(text.c_str()) == k_name;
  });
  texts.push_back(std::string(k_directory) + "=" + directory);
  texts.push_back(std::string(k_name) + "=" + name);
  publish(former->command, std::move(texts));
}

int start() {
  static constinit std::atomic<bool> told{false};
  const Prepared* const prepared = g_prepared.load(std::memory_order_acquire);
  const bool is_known = prepared != nullptr && !prepared->command.empty();
  const int error = is_known ? start_prepared(*prepared) : ENOENT;
  if (error == 0) return 0;
  if (!told.exchange(true, std::memory_order_relaxed))
    base::log(
        base::LogLevel::error,
        "no bucket can be read: the gateway cannot be started: {}: {}; CUBESHIM_COMMAND takes "
        "the path of the command",
        is_known ? prepared->command.c_str() : "cubeshim", base::text_of_error(error));
  return ECONNREFUSED;
}

}  // namespace cube::cache::gateway_start
