// The `cubeshim` command. The command runs programs with the library, shows what the library does,
// and diagnoses problems.
#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "shim/cli/commands.h"
#include "shim/cli/complaint.h"
#include "shim/cli/shell/help.h"
#include "shim/cli/wrong_use.h"

namespace {

int run_command(int argc, char** argv) {
  CLI::App app("Makes training jobs read slow storage faster than a local disk.", "cubeshim");
  app.require_subcommand(1);
  app.set_version_flag("--version", CUBESHIM_VERSION);
  app.set_help_flag("-h,--help", "Show what this does and the options that matter");
  app.set_help_all_flag("--help-all", "Show all options");
  int status = 0;
  cube::cli::add_run(app, status);
  cube::cli::add_profile(app, status);
  cube::cli::add_plan(app, status);
  cube::cli::add_library(app, status);
  cube::cli::add_warmup(app, status);
  cube::cli::add_stats(app, status);
  cube::cli::add_report(app, status);
  cube::cli::add_top(app, status);
  cube::cli::add_exporter(app, status);
  cube::cli::add_doctor(app, status);
  cube::cli::add_bench(app, status);
  cube::cli::add_clear(app, status);
  cube::cli::add_pool(app, status);
  cube::cli::add_pack(app, status);
  cube::cli::add_pack_look(app, status);
  cube::cli::add_extract(app, status);
  cube::cli::add_gateway(app, status);
  cube::cli::add_read_hits(app, status);
  cube::cli::add_docs(app, status);
  cube::cli::add_completion(app, status);
  cube::cli::add_manual(app, status);
  std::vector<std::string> words(argv + 1, argv + argc);
  cube::cli::drop_separator_of_run(words);
  // Converts "help run" into "run --help".
  if (!words.empty() && words.front() == "help") {
    words.erase(words.begin());
    words.emplace_back("--help");
  }
  // The parser reads words from the end of the vector.
  std::reverse(words.begin(), words.end());
  try {
    app.parse(std::move(words));
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", cube::cli::help_text(app, cube::cli::HelpKind::brief));
    return 0;
  } catch (const CLI::CallForAllHelp&) {
    fmt::print("{}", cube::cli::help_text(app, cube::cli::HelpKind::all));
    return 0;
  } catch (const CLI::Success& version) {
    return app.exit(version);
  } catch (const CLI::ParseError& wrong) {
    return cube::cli::complain(2, cube::cli::text_of_wrong_use(app, wrong));
  }
  return status;
}

constexpr const char* k_cannot_write = "cubeshim: cannot write to standard output\n";

// Occupies standard fds that are closed. Otherwise, a file that this command opens could become its
// stdout or stderr, and output would be written to the file. Calls on the occupied fds fail as on
// closed fds, and programs that this command runs do not inherit them.
void occupy_standard_fds() {
  for (int fd = 0; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) >= 0) continue;
    if (open("/dev/null", (fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) | O_CLOEXEC) != fd) return;
  }
}

}  // namespace

int main(int argc, char** argv) {
  occupy_standard_fds();
  try {
    const int status = run_command(argc, argv);
    // Without this flush, the rest of the buffer would be lost silently if the disk is full.
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
    std::fputs(k_cannot_write, stderr);
    return status != 0 ? status : 1;
  } catch (const std::exception& error) {
    // If a text is longer than the buffer, fmt throws when the write fails.
    if (std::ferror(stdout) != 0) {
      std::fputs(k_cannot_write, stderr);
    } else {
      std::fprintf(stderr, "cubeshim: %s\n", error.what());
    }
  } catch (...) {
    std::fputs("cubeshim: failed\n", stderr);
  }
  return 1;
}
