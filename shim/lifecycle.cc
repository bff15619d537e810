// Load, fork, exit. The constructor resolves libc, reads the settings and decides whether this is the first process of a
// job, which prints the report; its descendants know it by the variable CUBESHIM_JOB. No region is made here: a program
// that opens nothing under a prefix pays for the look-ups alone.
#include <pthread.h>

#include <cerrno>
#include <cstdlib>
#include <new>
#include <string>

#include "cache/base/log.h"
#include "shim/process.h"
#include "shim/real_libc.h"

extern "C" {
// For vfork.S, which jumps there.
__attribute__((visibility("hidden"))) constinit void* cube_shim_real_vfork = nullptr;
}

namespace cube::shim {
namespace {

constexpr const char* k_job_variable = "CUBESHIM_JOB";

// The settings say so, but the directory is not there: said once, by the first process.
std::string complaint_about(const std::string& prefix) {
  struct ::statx x {};
  const long error = base::sys::statx(AT_FDCWD, prefix.c_str(), AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC, STATX_TYPE, &x);
  const char* what = nullptr;
  if (base::sys::failed(error)) {
    what = strerrordesc_np(static_cast<int>(-error));
  } else if ((x.stx_mode & S_IFMT) != S_IFDIR) {
    what = "Not a directory";
  }
  if (what == nullptr) return {};
  return fmt::format("CUBESHIM_PREFIXES holds \"{}\": {}; it takes absolute paths of directories, ':' between them", prefix,
                     what);
}

// The job of this process: its own if it is the first, or if the first is gone.
base::ProcessId find_job(const base::ProcessId& self, bool& leader) {
  base::ProcessId job;
  const char* const known = getenv(k_job_variable);
  if (known != nullptr && base::parse_process_id(known, job) && job != self && base::liveness_of(job) != base::Liveness::dead) {
    leader = false;
    return job;
  }
  leader = true;
  char text[80];
  base::format_process_id(self, text, sizeof text);
  setenv(k_job_variable, text, 1);
  return self;
}

void complain(const base::ParsedConfig& parsed) {
  bool wrong = !parsed.errors.empty();
  for (const auto& line : parsed.errors) base::log(base::LogLevel::error, "{}", line);
  for (const auto& line : base::unknown_variables(environ)) base::log(base::LogLevel::warn, "{}", line);
  for (const auto& prefix : parsed.config.prefixes) {
    const std::string line = complaint_about(prefix);
    if (line.empty()) continue;
    base::log(base::LogLevel::error, "{}", line);
    wrong = true;
  }
  if (wrong && parsed.config.strict) base::sys::raw(SYS_exit_group, 2);
}

__attribute__((constructor)) void load() {
  const int saved_errno = errno;
  real::resolve_all();
  cube_shim_real_vfork = real::next_symbol("vfork");
  const char* const prefixes = getenv("CUBESHIM_PREFIXES");
  if (prefixes == nullptr || *prefixes == '\0') {
    errno = saved_errno;
    return;
  }
  // Never freed: calls come after every destructor.
  auto* const parsed = new (std::nothrow) base::ParsedConfig(base::parse_config([](const char* name) { return getenv(name); }));
  if (parsed != nullptr) {
    base::remember_stderr();
    base::set_log_level(parsed->config.log_level);
    bool leader = false;
    const base::ProcessId job = find_job(base::current_process(), leader);
    if (leader) complain(*parsed);
    process::start(parsed->config, job, leader);
    pthread_atfork(process::prepare_child, nullptr, process::become_child);
    at_quick_exit(process::leave);
  }
  errno = saved_errno;
}

__attribute__((destructor)) void unload() { process::leave(); }

}  // namespace
}  // namespace cube::shim
