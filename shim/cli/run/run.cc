// cubeshim run: runs a program in the environment that the library needs, and writes the report of
// the job if the program could not write it.
#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <optional>

#include "cache/base/clock.h"
#include "cache/base/error_text.h"
#include "cache/base/process/block_signals.h"
#include "cache/base/process/job_variable.h"
#include "cache/base/sys.h"
#include "cache/base/unique_fd.h"
#include "cache/report/progress.h"
#include "cache/report/write_report.h"
#include "shim/cli/commands.h"
#include "shim/cli/complaint.h"
#include "shim/cli/run/elf_file.h"
#include "shim/cli/run/library.h"
#include "shim/cli/run/program_child.h"
#include "shim/cli/run/program_file.h"
#include "shim/cli/run/run_program.h"
#include "shim/cli/settings.h"
#include "shim/cli/similar_path.h"
#include "shim/cli/wrong_use.h"
#include "shim/process/python_site.h"

namespace cube::cli {

namespace {

// Returns an errno if the path is not a directory. Returns 0 if the path is a directory, or if the
// server does not answer in time. The check runs in a child, because a dead server would block this
// command forever.
int error_of_directory(const std::string& path) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return 0;
  base::UniqueFd hear(ends[0]), answer(ends[1]);
  const pid_t child = fork();
  if (child < 0) return 0;
  if (child == 0) {
    struct ::stat st {};
    const int error = stat(path.c_str(), &st) != 0 ? errno : S_ISDIR(st.st_mode) ? 0 : ENOTDIR;
    [[maybe_unused]] const auto written = ::write(answer.get(), &error, sizeof error);
    _exit(0);
  }
  answer = base::UniqueFd();
  constexpr int k_prefix_patience_ms = 5000;
  struct ::pollfd heard {
    hear.get(), POLLIN, 0
  };
  int error = 0;
  const bool has_answered = poll(&heard, 1, k_prefix_patience_ms) == 1 &&
                            ::read(hear.get(), &error, sizeof error) == sizeof error;
  if (!has_answered) {
    tell("cubeshim: {}: no answer from its server for {} s; the program starts anyway\n", path,
         k_prefix_patience_ms / 1000);
    kill(child, SIGKILL);
  }
  // A child that waits for the server may survive SIGKILL, so do not wait for it.
  waitpid(child, nullptr, has_answered ? 0 : WNOHANG);
  return has_answered ? error : 0;
}

// A prefix that is given as an option must exist. A prefix from the environment may be missing,
// because it may be meant for other programs, or this program may make the directory.
bool check_prefixes(const Run& run, const base::Config& config) {
  const auto given = run.settings.given();
  const bool is_option = given.contains("CUBESHIM_PREFIXES");
  for (const auto& prefix : config.prefixes) {
    if (base::is_without_mount(config, prefix)) continue;
    const int error = error_of_directory(prefix);
    if (error == 0) continue;
    const bool ends = is_option || config.strict;
    tell("cubeshim: {} \"{}\": {}{}{}\n", is_option ? "--prefix" : "CUBESHIM_PREFIXES holds",
         prefix, base::text_of_error(error), path_hint(prefix, error),
         is_option ? " (one that the program makes itself can be named in CUBESHIM_PREFIXES)" : "");
    if (ends) return false;
  }
  return true;
}

}  // namespace

int check_run(Run& run) {
  if (run.program.empty()) {
    tell("cubeshim: no program to run: give it after the options\n");
    return 2;
  }
  if (run.program.front().starts_with('-')) {
    tell("cubeshim: {} is not an option of cubeshim {}{}; see cubeshim {} --help\n",
         run.program.front(), run.command->get_name(),
         option_hint(*run.command, run.program.front()), run.command->get_name());
    return 2;
  }
  const auto parsed = run.settings.parse();
  if (tell_errors(parsed)) return 2;
  if (run.needs_prefix && parsed.config.prefixes.empty()) {
    tell("cubeshim: no directory to serve: give --prefix DIRECTORY, or set CUBESHIM_PREFIXES\n");
    return 2;
  }
  for (const auto& line : base::unknown_variables(environ)) {
    tell("cubeshim: {}\n", line);
    if (parsed.config.strict) return 2;
  }
  if (!check_prefixes(run, parsed.config)) return 2;
  run.config = parsed.config;
  std::string& library = run.library;
  if (library.empty()) library = find_library();
  if (library.empty() || access(library.c_str(), R_OK) != 0) {
    tell("cubeshim: cannot read the library {}: give --library PATH of libcubeshim.so\n",
         library.empty() ? "libcubeshim.so" : library);
    return 2;
  }
  if (library.find_first_of(" :") != std::string::npos) {
    tell("cubeshim: {} cannot be preloaded: the loader splits names at spaces and colons\n",
         library);
    return 2;
  }
  return 0;
}

namespace {

// Runs in the child. Returns if the program cannot be started.
int exec_program(const Run& run, const base::ProcessId& job) {
  const std::string& library = run.library;
  for (const auto& [variable, value] : run.settings.given())
    setenv(variable.c_str(), value.c_str(), 1);
  // The program begins a new job, even if this command runs in another job.
  char text[80];
  base::format_job_variable({.first = job, .speaker = static_cast<std::uint32_t>(getpid())}, text,
                            sizeof text);
  setenv(base::k_job_variable, text, 1);
  // Does not preload the library into a program that uses musl. The library needs symbols of glibc,
  // so musl's loader would end the program.
  const std::string executable = executable_of(run.program.front());
  const auto elf = read_elf(executable);
  const bool is_preloaded = !elf || !elf->is_musl();
  if (is_preloaded) {
    put_in_front("LD_PRELOAD", library);
  } else {
    tell(
        "cubeshim: {} runs with musl ({}), the library only with glibc: the program's files are "
        "not served\n",
        executable, elf->interpreter);
  }
  // This command shows the progress. The program must not show it, because the first process of the
  // program may be a shell that reads nothing.
  setenv("CUBESHIM_PROGRESS", "off", 1);
  if (run.is_not_announced) setenv("CUBESHIM_ANNOUNCE", "0", 1);
  if (run.config.announce && !run.is_not_announced && is_preloaded) {
    // The library does the same in a Python interpreter, but not in a program that embeds Python.
    const std::string site = shim::python_site::find_beside(library.c_str());
    if (!site.empty()) shim::python_site::add(site);
  }

  std::vector<char*> arguments;
  arguments.reserve(run.program.size() + 1);
  for (const auto& word : run.program) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  execvp(arguments.front(), arguments.data());
  const int error = errno;
  tell("cubeshim: cannot run {}: {}\n", run.program.front(), base::text_of_error(error));
  return error == ENOENT ? 127 : 126;
}

// Removes the region in the background, after its last process has left. The background process is
// a child of init in a new session. The background process closes all its fds, because another
// process might wait for the end of a pipe.
void retire_in_background(cache::Region& region) {
  const pid_t child = fork();
  if (child > 0) waitpid(child, nullptr, 0);
  if (child != 0) return;
  setsid();
  if (fork() != 0) _exit(0);
  close_fds_from(0);
  [[maybe_unused]] const int at_root = chdir("/");
  prctl(PR_SET_NAME, "cubeshim-retire");
  constexpr timespec k_half_a_second{0, 500'000'000};
  while (region.is_named() && !region.retire_if_unused()) nanosleep(&k_half_a_second, nullptr);
  _exit(0);
}

std::optional<std::uint32_t> row_of(cache::Region& region, const base::ProcessId& job) {
  for (std::uint32_t i = 0; i < region.layout().job_rows; ++i) {
    if (region.job_row(i).leader == job) return i;
  }
  return {};
}

// Shows the progress of the cache on the terminal.
class JobProgress {
 public:
  JobProgress(const base::Config& config, const base::ProcessId& job)
      : config_(config), job_(job) {}
  void show() {
    std::string why;
    if (region_ == nullptr || !region_->is_named()) region_.reset(look_at_region(config_, why));
    if (region_ == nullptr) return;
    const auto row = row_of(*region_, job_);
    if (!row) return;
    cache::ReportText line = progress_.look(*region_, *row, base::monotonic_ns());
    if (line.size != 0) base::write_lines_to_terminal(line.bytes, line.size);
  }

 private:
  const base::Config& config_;
  const base::ProcessId job_;
  // Each call of look() ends an interval.
  cache::Progress progress_{0};
  std::unique_ptr<cache::Region> region_;
};

// Writes the report after the end of the program, if the program was killed before it could write
// the report.
void end_job(const base::Config& config, const base::ProcessId& job) {
  std::string why;
  const std::unique_ptr<cache::Region> region(look_at_region(config, why));
  if (region == nullptr) return;
  const auto row = row_of(*region, job);
  if (!row) return;
  cache::write_last_report(*region, *row, config);
  region->job_row(*row).reported.store(1, std::memory_order_relaxed);
  // If other processes of the job are still alive, the region is removed after they have ended.
  const bool stays = region->header().kept.load(std::memory_order_relaxed) != 0;
  if (!stays && !region->retire_if_unused() && getpid() != 1) retire_in_background(*region);
}

}  // namespace

int run_program(const Run& run, bool keeps_stdout) {
  base::remember_stderr();
  const base::ProcessId job = base::current_process();
  JobProgress progress(run.config, job);
  const Tick tick{base::is_stderr_a_terminal() ? static_cast<unsigned>(run.config.progress) : 0,
                  [&] { progress.show(); }};
  const auto status = run_in_child([&] { return exec_program(run, job); }, keeps_stdout, tick);
  if (!status) {
    tell("cubeshim: cannot start a process: {}\n", base::text_of_error(errno));
    return W_EXITCODE(126, 0);
  }
  const base::BlockSignals block;
  end_job(run.config, job);
  return *status;
}

void drop_separator_of_run(std::vector<std::string>& words) {
  if (words.empty() || (words.front() != "run" && words.front() != "profile")) return;
  std::size_t i = 1;
  while (i < words.size() && words[i].starts_with('-') && words[i] != "--") {
    // Every option except these has a value, which is the rest of the word or the next word.
    const bool is_alone =
        words[i] == "-h" || words[i] == "--help" || words[i] == "--help-all" ||
        words[i] == "--no-announce" ||
        (words.front() == "profile" && (words[i] == "--observe" || words[i] == "--all")) ||
        words[i].find('=') != std::string::npos ||
        (words[i].starts_with("-p") && words[i].size() > 2);
    i += is_alone ? 1 : 2;
  }
  if (i < words.size() && words[i] == "--") words.erase(words.begin() + static_cast<long>(i));
}

void add_run_options(CLI::App& command, Run& run, Settings::Which settings) {
  run.command = &command;
  run.settings.add_to(command, settings);
  add_value(command, "--library", "PATH", run.library,
            "libcubeshim.so, if it is not the one that came with this command");
  command.add_flag("--no-announce", run.is_not_announced,
                   "Let no data loader announce what it will read: --announce 0");
  // The program begins at the first word that is not an option of this command.
  command.prefix_command();
}

void add_run(CLI::App& app, int& status) {
  CLI::App* const command =
      app.add_subcommand("run", "Run a program whose files under the prefixes are served");
  const auto options = std::make_shared<Run>();
  add_run_options(*command, *options, Settings::Which::all);
  command->callback([command, options, &status] {
    options->program = command->remaining();
    status = check_run(*options);
    if (status == 0) status = end_alike(run_program(*options, /*keeps_stdout=*/false));
  });
}

}  // namespace cube::cli
