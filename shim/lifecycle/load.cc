// The load of the library. The constructor resolves libc's functions, reads the settings and
// decides whether this is the first process of a job, which writes the report. Descendants
// recognize the first process by the variable CUBESHIM_JOB. The constructor makes no region, so a
// program that opens nothing below a prefix pays only for the lookups.
#include <dlfcn.h>
#include <pthread.h>
#include <sys/auxv.h>
#include <unwind.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "cache/base/error_text.h"
#include "cache/base/log.h"
#include "cache/base/process/job_variable.h"
#include "cache/bucket/gateway_start.h"
#include "shim/calls/loaded_calls.h"
#include "shim/lifecycle/fork.h"
#include "shim/lifecycle/lifecycle.h"
#include "shim/path/spelling.h"
#include "shim/path/startup_directory.h"
#include "shim/process/attachment.h"
#include "shim/process/cancellation.h"
#include "shim/process/process.h"
#include "shim/process/python_site.h"
#include "shim/process/real_libc.h"
#include "shim/profile/profile.h"

namespace cube::shim {
namespace {

// Returns a message if a directory that the settings name is missing. Only the first process of the
// job reports it. A server is asked only with CUBESHIM_STRICT=1, because the server may be gone and
// the program may not need it.
std::string complaint_about(const std::string& prefix, const startup_directory::DirectoryLook& look,
                            bool may_wait) {
  int error = look.error;
  if (look.place != startup_directory::DirectoryLook::Place::real && may_wait) {
    struct ::stat st {};
    error = static_cast<int>(-base::sys::fstatat(AT_FDCWD, prefix.c_str(), &st, AT_NO_AUTOMOUNT));
    if (error == 0 && !S_ISDIR(st.st_mode)) error = ENOTDIR;
  }
  if (error == 0) return {};
  return fmt::format(
      "CUBESHIM_PREFIXES holds \"{}\": {}; it takes absolute paths of directories, ':' between "
      "them",
      prefix, base::text_of_error(error));
}

// Returns the job of this process. The process begins a new job in three cases: there is no job
// yet; the first process of the job has ended; or the first process is in another PID namespace, so
// that this process cannot check whether it is alive.
base::JobVariable find_job(const base::ProcessId& self) {
  base::JobVariable job;
  const char* const known = getenv(base::k_job_variable);
  const bool is_known =
      known != nullptr && base::parse_job_variable(known, job) && job.first != self;
  if (is_known && base::liveness_of(job.first) == base::Liveness::alive) return job;
  job = {.first = self};
  char text[80];
  base::format_job_variable(job, text, sizeof text);
  setenv(base::k_job_variable, text, 1);
  return job;
}

// Returns the path of the command that was installed with this library, or an empty string.
std::string find_command() {
  Dl_info library{};
  if (dladdr(reinterpret_cast<const void*>(&find_job), &library) == 0 ||
      library.dli_fname == nullptr)
    return {};
  char real[PATH_MAX];
  if (::realpath(library.dli_fname, real) == nullptr) return {};
  const std::string_view path = real;
  const std::string folder(path.substr(0, path.rfind('/') + 1));
  for (const char* const place : {"cubeshim", "../bin/cubeshim", "../../bin/cubeshim"}) {
    std::string command = folder + place;
    if (base::sys::raw(SYS_faccessat, AT_FDCWD, base::sys::arg(command.c_str()), X_OK) == 0)
      return command;
  }
  return {};
}

void ready_buckets(const base::Config& config) {
  cache::gateway_start::prepare(config.command.empty() ? find_command() : config.command, environ);
  cache::Bucket::use_start(cache::gateway_start::start);
  cache::Bucket::use_region([] {
    cache::FileCache* const cache = attachment::cache_for_buckets();
    return cache != nullptr ? cache->bucket_region(process::config()) : cache::BucketRegion{};
  });
}

// Opens the origins. Returns a line for each origin that cannot be used. The prefix of such an
// origin is an ordinary directory.
std::vector<std::string> open_origins(base::Config& config) {
  std::vector<std::string> errors;
  if ((config.origins.empty() && config.buckets.empty()) || config.mode == base::Mode::off)
    return errors;
  char directory[PATH_MAX];
  if (!config.origins.empty() &&
      !base::sys::failed(base::sys::raw(SYS_getcwd, base::sys::arg(directory), sizeof directory))) {
    const std::string absolute = cache::Origins::make_absolute(config.origins, directory);
    if (!absolute.empty()) setenv(cache::Origins::k_variable, absolute.c_str(), 1);
  }
  cache::BucketMount::use_store(cache::gateway_start::store_mark(environ));
  // Never freed, because the program may still make calls after all destructors have run.
  const cache::Origins* const origins =
      cache::Origins::open(config.origins, config.buckets, errors).release();
  if (!config.buckets.empty()) ready_buckets(config);
  process::g_origins.store(origins, std::memory_order_release);
  process::g_origin_metadata.store(cache::AllMetadata::make(*origins).release(),
                                   std::memory_order_release);
  return errors;
}

// Makes the path of the list absolute, because child processes may start in another directory.
void make_list_absolute(base::Config& config) {
  char directory[PATH_MAX];
  if (config.prefetch_list.empty() || config.prefetch_list.front() == '/') return;
  if (base::sys::failed(base::sys::raw(SYS_getcwd, base::sys::arg(directory), sizeof directory)))
    return;
  config.prefetch_list = std::string(directory) + "/" + config.prefetch_list;
  setenv("CUBESHIM_PREFETCH_LIST", config.prefetch_list.c_str(), 1);
}

bool tell_unknown_variables() {
  const auto lines = base::unknown_variables(environ);
  for (const auto& line : lines) base::log(base::LogLevel::warn, "{}", line);
  return !lines.empty();
}

// Reports what is wrong with the settings. `looks` holds the results for the prefixes, in the same
// order. If `is_told` is true, `cubeshim run` has already reported wrong variables and prefixes.
void complain(const base::ParsedConfig& parsed, const std::vector<std::string>& about_origins,
              const std::vector<startup_directory::DirectoryLook>& looks, bool is_told) {
  bool wrong = !parsed.errors.empty() || !about_origins.empty();
  for (const auto& line : parsed.errors) base::log(base::LogLevel::error, "{}", line);
  for (const auto& line : about_origins) base::log(base::LogLevel::error, "{}", line);
  if (!is_told) wrong = tell_unknown_variables() || wrong;
  for (std::size_t i = 0; i < looks.size() && !is_told; ++i) {
    const std::string& prefix = parsed.config.prefixes[i];
    // Only the prefix of a mount must exist.
    if (base::is_without_mount(parsed.config, prefix)) continue;
    const std::string line = complaint_about(prefix, looks[i], parsed.config.strict);
    if (line.empty()) continue;
    base::log(base::LogLevel::error, "{}", line);
    wrong = true;
  }
  if (wrong && parsed.config.strict) base::sys::raw(SYS_exit_group, 2);
}

// If an uninstrumented library has written data, MemorySanitizer considers the data uninitialized,
// and would end the program.
bool host_has_memory_sanitizer() { return dlsym(RTLD_DEFAULT, "__msan_init") != nullptr; }

// If a thread is cancelled, or an exception of the program passes through our frames, the program's
// libgcc unwinds these frames. The program's libgcc calls our copy of the C++ personality routine,
// which sets registers through our copy of libgcc. Our copy of libgcc aborts if it has never walked
// a stack. So this function walks a stack.
void ready_unwinder() {
  _Unwind_Backtrace([](_Unwind_Context*, void*) { return _URC_END_OF_STACK; }, nullptr);
}

// True if LD_PRELOAD names this library, which shows that the user wants files to be served. If the
// library is linked, or named in /etc/ld.so.preload, it may be meant for other programs.
bool is_preloaded_by_variable() {
  const char* const list = getenv("LD_PRELOAD");
  Dl_info library{};
  if (list == nullptr || dladdr(reinterpret_cast<const void*>(&find_job), &library) == 0 ||
      library.dli_fname == nullptr)
    return false;
  const std::string_view path = library.dli_fname;
  return std::string_view(list).find(path.substr(path.rfind('/') + 1)) != std::string_view::npos;
}

// Warns once in each job that nothing is served, because the user may have misspelled the name of
// the setting.
void complain_of_no_work() {
  if (!is_preloaded_by_variable()) return;
  base::remember_stderr();
  const base::ParsedConfig parsed =
      base::parse_config([](const char* name) { return getenv(name); });
  base::set_log_level(parsed.config.log_level);
  base::ProcessId teller;
  const char* const known = getenv(base::k_told_variable);
  const bool is_told = known != nullptr && base::parse_process_id(known, teller);
  if (is_told && base::liveness_of(teller) == base::Liveness::alive) return;
  char text[80];
  base::format_process_id(base::current_process(), text, sizeof text);
  setenv(base::k_told_variable, text, 1);
  if (!tell_unknown_variables())
    base::log(base::LogLevel::warn,
              "nothing is served: CUBESHIM_PREFIXES is not set; it names the directories to serve");
  if (parsed.config.strict) base::sys::raw(SYS_exit_group, 2);
}

void start_by_settings() {
  // Never freed, because the program may still make calls after all destructors have run.
  auto* const parsed = new (std::nothrow)
      base::ParsedConfig(base::parse_config([](const char* name) { return getenv(name); }));
  if (parsed == nullptr) return;
  base::remember_stderr();
  base::set_log_level(parsed->config.log_level);
  if (parsed->config.observe) parsed->config.mode = base::Mode::off;
  const base::ProcessId self = base::current_process();
  const base::JobVariable job = find_job(self);
  const bool speaks = job.first == self || job.speaker == self.pid;
  const auto about_origins = open_origins(parsed->config);
  std::vector<startup_directory::DirectoryLook> looks;
  if (speaks) {
    for (const auto& prefix : parsed->config.prefixes)
      looks.push_back(startup_directory::look_at(prefix));
    complain(*parsed, about_origins, looks, /*is_told=*/job.first != self);
    make_list_absolute(parsed->config);
  }
  if (parsed->config.mode != base::Mode::off && parsed->config.prefetch && parsed->config.announce)
    python_site::start(speaks);
  if (parsed->config.mode != base::Mode::off && parsed->config.stats != "off")
    spelling::start(parsed->config, std::move(looks));
  lifecycle::start(parsed->config, job.first, speaks);
  pthread_atfork(lifecycle::before_libc_fork, lifecycle::after_libc_fork,
                 lifecycle::in_libc_fork_child);
  at_quick_exit(lifecycle::leave);
  if (process::is_active()) loaded_calls::start();
  profile::start(parsed->config);
  // Calls that are cancellation points reach the recorder only if this mark is set.
  if (profile::is_on()) g_may_be_cancelled.store(true, std::memory_order_release);
}

void start_if_wanted() {
  const auto is_set = [](const char* name) {
    const char* const text = getenv(name);
    return text != nullptr && *text != '\0';
  };
  // /etc/ld.so.preload or a trusted directory may load this library into a program that has more
  // rights than its caller (setuid, file capabilities). The caller controls the settings, and could
  // name files that the program would then overwrite.
  const bool is_privileged = getauxval(AT_SECURE) != 0;
  const bool has_work = is_set("CUBESHIM_PREFIXES") || is_set("CUBESHIM_PACKS") ||
                        is_set("CUBESHIM_BUCKETS") || is_set("CUBESHIM_PROFILE");
  if (!has_work || is_privileged) {
    if (!is_privileged) complain_of_no_work();
  } else if (host_has_memory_sanitizer()) {
    base::write_to_stderr(
        "cubeshim: warn: files are read without a cache: the program is built with "
        "MemorySanitizer, under which no preloaded library works; address, thread and undefined "
        "are fine\n");
  } else {
    start_by_settings();
  }
}

__attribute__((constructor)) void load() {
  const int saved_errno = errno;
  ready_unwinder();
  real::resolve_all();
  real::find_stat_of_others();
  start_if_wanted();
  // Release. Pairs with the acquire in is_loaded().
  process::g_is_loaded.store(true, std::memory_order_release);
  errno = saved_errno;
}

__attribute__((destructor)) void unload() { lifecycle::leave(); }

}  // namespace
}  // namespace cube::shim
