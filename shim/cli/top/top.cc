// cubeshim top: shows the activity of the jobs in a user's caches, as rates over the last seconds.
// If there is no job, waits for the next job.
#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <memory>
#include <set>

#include "cache/base/clock.h"
#include "shim/cli/bus_guard.h"
#include "shim/cli/commands.h"
#include "shim/cli/complaint.h"
#include "shim/cli/settings.h"
#include "shim/cli/top/top_table.h"
#include "shim/cli/top/top_terminal.h"
#include "shim/cli/top/top_view.h"
#include "shim/cli/wrong_use.h"

namespace cube::cli {
namespace {

struct Top {
  Settings settings;
  unsigned interval = 2, count = 0;
  bool json = false;
};

// False for a terminal of unknown type and for a dumb terminal (in an editor or a CI), which would
// print the sequences that move the cursor.
bool has_screen() {
  const char* const kind = std::getenv("TERM");
  return isatty(STDOUT_FILENO) != 0 && kind != nullptr && *kind != '\0' &&
         std::string_view(kind) != "dumb";
}

// Shows a frame after each sample, on a terminal or as plain text.
class TopScreen {
 public:
  explicit TopScreen(std::string place) : place_(std::move(place)) {}

  void show(const std::vector<CacheLook>& caches, const std::vector<std::string>& troubles) {
    std::string ended, tables;
    bool is_any = false;
    for (const auto& cache : caches) {
      for (const auto& job : cache.jobs) {
        if (job.is_over) ended += line_of_ended(job);
      }
      // On a terminal, the figures of a removed cache stay on display until there is another cache.
      if (cache.is_gone && is_terminal_) continue;
      is_any = is_any || !cache.is_gone;
      if (!cache.is_gone || !cache.jobs.empty()) tables += top_table(cache);
    }
    if (is_terminal_) return draw(tables, ended, troubles);
    fmt::print("{}{}", tables, ended);
    if (!is_any && !is_waiting_) fmt::print("{}", waiting_line());
    is_waiting_ = !is_any;
  }

 private:
  void draw(const std::string& tables, const std::string& ended,
            const std::vector<std::string>& troubles) {
    if (!tables.empty()) last_ = tables;
    constexpr std::size_t k_shown = 5;
    if (!ended.empty()) ended_.push_back(ended);
    while (ended_.size() > k_shown) ended_.pop_front();
    fmt::print("\x1b[H\x1b[2J{}", last_);
    for (const auto& line : ended_) fmt::print("{}", line);
    for (const auto& trouble : troubles) fmt::print("{}\n", trouble);
    if (tables.empty()) fmt::print("{}", waiting_line());
  }
  std::string waiting_line() const { return fmt::format("waiting for a job ({})\n", place_); }

  const bool is_terminal_ = has_screen();
  const std::string place_;
  bool is_waiting_ = false;
  std::string last_;
  std::deque<std::string> ended_;
};

// Reports each problem once, even if it recurs. Not used on a terminal, where the screen shows
// problems.
void tell_of(const std::vector<std::string>& troubles, std::set<std::string>& told) {
  for (const auto& trouble : troubles) {
    if (told.insert(trouble).second) complain(1, trouble);
  }
}

// The first frame has no rates yet, so it shows the means since the start of each job.
void show_totals(std::vector<CacheLook>& caches) {
  for (CacheLook& cache : caches) {
    for (JobRise& job : cache.jobs) {
      job.rise = job.totals;
      job.seconds = std::max(static_cast<double>(job.totals.milliseconds) / 1000, 1e-3);
    }
  }
}

int show_on(TopTerminal& terminal, WatchedCaches& watched, TopView view, unsigned interval) {
  while (true) {
    std::vector<std::string> troubles;
    view.update(watched.look(troubles), troubles);
    const std::uint64_t until = base::monotonic_ns() + interval * 1'000'000'000ULL;
    for (std::uint64_t now = 0; (now = base::monotonic_ns()) < until;) {
      terminal.draw(view);
      if (!view.press(
              terminal.wait_for_key(static_cast<int>((until - now) / base::k_ns_per_ms) + 1)))
        return 0;
    }
  }
}

int top(const Top& top) {
  const auto parsed = top.settings.parse();
  for (const auto& error : parsed.errors) complain(2, error);
  if (!parsed.errors.empty()) return 2;
  const base::Config& config = parsed.config;
  const char* const name = std::getenv("CUBESHIM_NAME");
  const bool is_named =
      top.settings.given().contains("CUBESHIM_NAME") || (name != nullptr && *name != '\0');
  BusGuard::install();
  WatchedCaches watched(config.ram_dir, is_named ? config.name : "");
  const std::string place =
      is_named ? fmt::format("the cache named {} in {}", config.name, config.ram_dir)
               : fmt::format("any cache of this user in {}", config.ram_dir);
  if (!top.json && top.count == 0 && has_screen()) {
    if (const auto terminal = TopTerminal::open())
      return show_on(*terminal, watched, TopView(place, top.interval), top.interval);
  }
  TopScreen screen(place);
  bool has_seen = false;
  std::set<std::string> told;
  for (unsigned shown = 0;; ++shown) {
    std::vector<std::string> troubles;
    auto caches = watched.look(troubles);
    if (top.count == 1) show_totals(caches);
    has_seen = has_seen || !caches.empty();
    if (top.json) {
      for (const auto& cache : caches) fmt::print("{}", top_json(&cache));
      if (caches.empty()) fmt::print("{}", top_json(nullptr));
    } else {
      screen.show(caches, troubles);
    }
    if (top.json || !has_screen()) tell_of(troubles, told);
    // The output cannot be written, because its reader is gone or the disk is full. main() reports
    // this.
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) return 1;
    if (top.count != 0 && shown + 1 >= top.count) return has_seen ? 0 : 1;
    poll(nullptr, 0, static_cast<int>(top.interval * 1000));
  }
}

}  // namespace

void add_top(CLI::App& app, int& status) {
  CLI::App* const command = app.add_subcommand(
      "top",
      "Show what jobs do now, per second. Without --name it shows all caches of this user. "
      "On a terminal, keys sort and open a job and its processes; ? lists them");
  const auto options = std::make_shared<Top>();
  options->settings.add_to(*command, Settings::Which::of_the_region);
  // In this command, the option has another default.
  command->get_option("--name")->group("Options")->description(
      "Only the cache of this name; the default is all of this user");
  command
      ->add_option("--interval", options->interval,
                   "Show it again at this interval in seconds; the default is 2")
      ->type_name("SECONDS")
      ->check(whole_number(1, 86400));
  command
      ->add_option("--count", options->count,
                   "End when it has been shown this many times; with status 1 if there was no "
                   "cache. 1 shows "
                   "the means since each job began")
      ->type_name("TIMES")
      ->check(whole_number(1, UINT32_MAX));
  command->add_flag("--json", options->json, "One JSON object per line, for each cache");
  command->callback([options, &status] { status = top(*options); });
}

}  // namespace cube::cli
