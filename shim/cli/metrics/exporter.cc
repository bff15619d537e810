// cubeshim exporter: publishes the figures of a user's caches for Prometheus, by HTTP or as a file
// for node_exporter's textfile collector.
#include <fmt/core.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <set>

#include "cache/base/error_text.h"
#include "cache/base/settings/config.h"
#include "shim/cli/bus_guard.h"
#include "shim/cli/commands.h"
#include "shim/cli/complaint.h"
#include "shim/cli/metrics/exporter_server.h"
#include "shim/cli/metrics/listen_address.h"
#include "shim/cli/metrics/metric_table.h"
#include "shim/cli/metrics/metrics_file.h"
#include "shim/cli/metrics/metrics_text.h"
#include "shim/cli/settings.h"
#include "shim/cli/wrong_use.h"

namespace cube::cli {
namespace {

constexpr const char* k_default_address = "127.0.0.1:9437";

struct Exporter {
  std::string listen, textfile, ram_dir;
  std::vector<std::string> names;
  unsigned every = 0;
  bool once = false, list = false;
};

// Reports each problem only once while it lasts. A cache that is read every second would otherwise
// fill the log.
void tell_of(const std::vector<std::string>& troubles) {
  static std::mutex mutex;
  static std::set<std::string> told;
  const std::lock_guard lock(mutex);
  std::set<std::string> now(troubles.begin(), troubles.end());
  for (const std::string& trouble : now) {
    if (!told.contains(trouble)) complain(0, trouble);
  }
  told = std::move(now);
}

sigset_t signals_of_the_end() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

// Waits at most `seconds` for a signal that ends the command. Returns true if there was a signal.
bool wait_for_the_end(unsigned seconds) {
  const sigset_t signals = signals_of_the_end();
  const timespec patience{static_cast<time_t>(seconds), 0};
  return sigtimedwait(&signals, nullptr, &patience) > 0;
}

int serve(const std::string& text, CacheMetrics& metrics) {
  const auto address = parse_listen_address(text);
  if (!address)
    return complain(2, fmt::format("--listen \"{}\" is not usable: it takes an address and a port, "
                                   "such as {} or [::1]:9437",
                                   text, k_default_address));
  std::string why = has_exporter_server() ? why_not_listening(*address) : "";
  if (!why.empty()) return complain(1, fmt::format("cannot listen on {}: {}", text, why));
  const auto server = start_exporter_server(text, metrics, tell_of, why);
  if (server == nullptr) return complain(1, why);
  fmt::print("http://{}:{}/metrics\n", text.substr(0, text.rfind(':')), server->port());
  std::fflush(stdout);
  const sigset_t signals = signals_of_the_end();
  int signal = 0;
  while (sigwait(&signals, &signal) != 0) {
  }
  return 0;
}

int write_once(const Exporter& options, CacheMetrics& metrics) {
  std::vector<std::string> troubles;
  const std::string text = metrics_text(metrics.collect(troubles));
  tell_of(troubles);
  if (options.textfile == "-") {
    fmt::print("{}", text);
    return 0;
  }
  const std::string why = write_metrics_file(options.textfile, text);
  if (!why.empty()) tell_of({why});
  return why.empty() ? 0 : 1;
}

int write_files(const Exporter& options, CacheMetrics& metrics) {
  const std::string& file = options.textfile;
  if (file != "-" && !file.ends_with(".prom"))
    return complain(
        2, fmt::format("--textfile {}: node_exporter only reads files whose names end in .prom",
                       file));
  if (file == "-" && options.every != 0)
    return complain(2, "--textfile - is standard output, which needs --once");
  // If the first write fails, ends the command. Later failures may be temporary, such as a full
  // disk.
  const int status = write_once(options, metrics);
  if (status != 0 || options.every == 0) return status;
  while (!wait_for_the_end(options.every)) write_once(options, metrics);
  // Removes the file, because its figures would become outdated.
  unlink(file.c_str());
  return 0;
}

// Prints the table of doc/deploy/METRICS.md.
int list_metrics() {
  constexpr const char* k_kinds[] = {"counter", "gauge", "histogram"};
  fmt::print("| metric | type | labels | unit and meaning |\n| --- | --- | --- | --- |\n");
  for (const MetricFamily& family : metric_families()) {
    fmt::print("| `{}` | {} | {} | {} |\n", family.name, k_kinds[static_cast<int>(family.kind)],
               fmt::join(family.label_names, ", "), family.help);
    for (const MetricRow& row : metric_rows()) {
      if (row.family == family.name && !row.label.empty())
        fmt::print("| | | `{}=\"{}\"` | {} |\n", row.label, row.value, row.detail);
    }
  }
  return 0;
}

base::ParsedConfig parse_cache(const std::string& name, const std::string& ram_dir) {
  const auto lookup = [&](const char* variable) -> const char* {
    const bool is_name = std::string_view(variable) == "CUBESHIM_NAME",
               is_dir = std::string_view(variable) == "CUBESHIM_RAM_DIR";
    if (!is_name && !is_dir) return nullptr;
    const std::string& given = is_name ? name : ram_dir;
    return given.empty() ? std::getenv(variable) : given.c_str();
  };
  return base::parse_config(lookup, base::IfWrong::end);
}

// Returns a line about a setting. If the user gave the setting as an option, names the option.
std::string named_as_given(const std::string& line, const Exporter& options) {
  const std::string variable = line.substr(0, line.find('='));
  const bool is_given =
      variable == "CUBESHIM_NAME" ? !options.names.empty() : !options.ram_dir.empty();
  return is_given ? fmt::format("{} {}", option_name(variable), line.substr(variable.size() + 1))
                  : line;
}

int exporter(Exporter options) {
  if (options.list) return list_metrics();
  if (!options.textfile.empty() && !options.listen.empty())
    return complain(2, "give either --listen or --textfile, not both");
  if (options.textfile.empty() && (options.once || options.every != 0))
    return complain(2, "--once and --every need --textfile FILE");
  if (options.once && options.every != 0)
    return complain(2, "give either --once or --every, not both");
  if (!options.textfile.empty() && !options.once && options.every == 0) options.every = 15;
  // As in a job, the variables name the cache and its directory.
  const char* const name = std::getenv("CUBESHIM_NAME");
  if (options.names.empty() && name != nullptr && *name != '\0') options.names.emplace_back(name);
  std::string directory;
  std::set<std::string> names(options.names.begin(), options.names.end());
  for (const std::string& one : names.empty() ? std::set<std::string>{"default"} : names) {
    const auto parsed = parse_cache(one, options.ram_dir);
    if (!parsed.errors.empty()) return complain(2, named_as_given(parsed.errors.front(), options));
    directory = parsed.config.ram_dir;
  }
  if (access(directory.c_str(), R_OK | X_OK) != 0)
    return complain(1, fmt::format("cannot read the directory of the caches, {}: {}", directory,
                                   base::text_of_error(errno)));
  CacheMetrics metrics(directory, {names.begin(), names.end()});
  const auto absent = metrics.absent();
  for (const std::string& one : absent)
    complain(0, fmt::format("there is no cache named {} in {}{}", one, directory,
                            options.once ? "" : " yet: its metrics come when a job makes it"));

  BusGuard::install();
  // Blocks the signals before the first thread starts. Every thread inherits the mask, so only the
  // waiting thread gets the signals.
  const sigset_t signals = signals_of_the_end();
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  if (options.textfile.empty())
    return serve(options.listen.empty() ? k_default_address : options.listen, metrics);
  const int status = write_files(options, metrics);
  return status == 0 && options.once && !absent.empty() ? 1 : status;
}

}  // namespace

void add_exporter(CLI::App& app, int& status) {
  CLI::App* const command = app.add_subcommand(
      "exporter",
      "Report the figures of this user's caches to Prometheus. It answers by HTTP, or "
      "writes a file for node_exporter");
  const auto options = std::make_shared<Exporter>();
  add_value(
      *command, "--listen", "ADDRESS:PORT", options->listen,
      fmt::format("The address for scrapes, such as [::1]:9437; the default is {}. Anyone who "
                  "reaches it can read the metrics",
                  k_default_address));
  add_value(*command, "--textfile", "FILE", options->textfile,
            "Write the metrics to this file instead, for node_exporter's textfile collector; its "
            "name ends in .prom");
  command->add_flag("--once", options->once, "Write that file once, and end");
  add_value(*command, "--every", "SECONDS", options->every,
            "Write that file again at this interval in seconds; the default is 15")
      ->check(whole_number(1, 86400));
  command->add_flag("--list", options->list, "Print a table of the metrics, and end");
  add_value(*command, "--name", "NAME", options->names,
            "Only the cache of this name; may be repeated; the default is all")
      ->allow_extra_args(false);
  add_value(*command, "--ram-dir", "DIRECTORY", options->ram_dir,
            "Directory of the caches; the default is that of CUBESHIM_RAM_DIR");
  command->callback([options, &status] { status = exporter(*options); });
}

}  // namespace cube::cli
