// TopView: the lines of the pages.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "cache/report/figures.h"
#include "cache/report/text_report.h"
#include "shim/cli/settings.h"
#include "shim/cli/top/top_text.h"
#include "shim/cli/top/top_view.h"

namespace cube::cli {
namespace {

constexpr std::size_t k_mark_width = 9;  // the width of a mark and a PID

constexpr const char* k_help[] = {
    "Up, Down, PgUp, PgDn   choose a job or a process, or scroll",
    "Enter, Right           open it: a job has processes, a process its figures",
    "Esc, Left, Backspace   back",
    "s, S                   sort by the next or the previous column",
    "r                      the least first, or the most",
    "Tab                    other columns: files, large files, metadata",
    "q                      end",
    ""};

constexpr const char* k_help_on_figures =
    "Figures are per second since the last update; p50 is the median, and 99 of 100 opens take "
    "less than p99. The page of a job has more: files that were not served, and why, since "
    "it began. Directories are not counted: that would cost each hit some time.";

// Adds a line for each tier, a line for each server, and a line for the gateways.
void add_places(std::vector<std::string>& lines, const CacheLook& cache, std::size_t columns) {
  for (std::size_t i = 0; i < base::k_tiers; ++i) {
    const base::TierStatus& tier = cache.tiers[i];
    if (tier.capacity == 0) continue;
    std::string line = fmt::format("{}: {} of {} used by {} files", base::k_tier_kinds[i].name,
                                   in_units(tier.used), in_units(tier.capacity), tier.entries);
    if (cache::has_figure(i, "unwritten"))
      line += fmt::format(", {} to be written", tier.unwritten);
    add_wrapped(lines, line, columns);
  }
  for (const SeenServer& server : cache.servers)
    add_wrapped(lines,
                fmt::format("server {}: {}; {} of {} used", server.name, server.state,
                            in_units(server.used), in_units(server.capacity)),
                columns);
  add_wrapped(lines, line_of_gateway(cache), columns);
}

// Returns as many columns of the set as fit.
std::vector<TopColumn> columns_for(TopSet set, std::size_t columns) {
  std::vector<TopColumn> some;
  std::size_t width = k_mark_width - 1;
  for (const TopColumn& column : columns_of(set)) {
    width += 1 + static_cast<std::size_t>(column.width);
    if (width > columns) break;
    some.push_back(column);
  }
  return some;
}

std::optional<double> last_of(const GaugeHistory& history) {
  return history.empty() ? std::nullopt : history.back();
}

// Converts a latency to a share of the scale, which is logarithmic, from 10 us to 1 s.
std::optional<double> share_of_latency(std::optional<double> us) {
  constexpr double k_least_us = 10, k_factors = 5;
  if (!us) return us;
  return std::clamp(std::log10(std::max(*us, 1.0) / k_least_us) / k_factors, 0.02, 1.0);
}

const char* name_of(TopSet set) {
  return set == TopSet::large ? "LARGE" : set == TopSet::metadata ? "METADATA" : "PID";
}

}  // namespace

std::vector<ScreenLine> TopView::lines(std::size_t rows, std::size_t columns) {
  std::vector<ScreenLine> lines = {{title(), Look::strong}};
  // The title, the keys, the heading and two rows are always shown.
  constexpr std::size_t k_needed = 5;
  const std::size_t spare = rows - std::min(rows, k_needed);
  const auto foot = below(spare / 3);
  for (auto& line : above(spare - foot.size(), columns)) lines.push_back(std::move(line));
  const std::size_t taken = lines.size() + foot.size() + 1;
  for (auto& line : body(std::max<std::size_t>(rows - std::min(rows, taken), 1), columns))
    lines.push_back(std::move(line));
  const std::size_t end = rows - std::min(rows, foot.size() + 1);
  lines.resize(end);
  lines.insert(lines.end(), foot.begin(), foot.end());
  const TopColumn& by = columns_of(k_top_sets[set_])[sort_];
  const bool has_table = page_ == Page::jobs || page_ == Page::job;
  lines.push_back({has_table
                       ? fmt::format("q end  Enter look into  Tab columns  ? help  s sort: {}{}",
                                     by.heading, is_reversed_ ? ", least first" : "")
                       : "q end  Esc back  ? help",
                   Look::strong});
  lines.resize(std::min(lines.size(), rows));
  for (ScreenLine& line : lines) cut(line, columns);
  return lines;
}

std::string TopView::title() const {
  const auto of = [](const char* kind, const Chosen& chosen) {
    return fmt::format("{} {}{}: {}", kind, chosen.rise.pid, chosen.is_over ? " has ended" : "",
                       chosen.command);
  };
  switch (page_) {
    case Page::help: return "cubeshim top: keys";
    case Page::job: return of("job", job_);
    case Page::process: return of("process", process_);
    case Page::jobs: break;
  }
  if (caches_.empty() || is_waiting_) return fmt::format("waiting for a job ({})", place_);
  std::size_t jobs = 0;
  for (const CacheLook& cache : caches_) jobs += cache.jobs.size();
  return fmt::format("cubeshim top: {} cache{}, {} job{}; every {} s", caches_.size(),
                     caches_.size() == 1 ? "" : "s", jobs, jobs == 1 ? "" : "s", interval_);
}

// Returns a line for each cache, followed by the lines of its tiers, servers and gateways.
std::vector<ScreenLine> TopView::above(std::size_t most, std::size_t columns) const {
  std::vector<ScreenLine> lines;
  if (page_ == Page::job) {
    for (auto& line : text_of_job(columns)) lines.push_back({std::move(line)});
  }
  if (page_ == Page::jobs) {
    for (std::size_t i = 0; i < caches_.size(); ++i) {
      const std::string mark =
          caches_.size() == 1 ? "" : fmt::format("{} ", static_cast<char>('a' + i % 26));
      // The gauges of a cache need four lines.
      constexpr std::size_t k_most_with_gauges = 2, k_lines = 4, k_for_others = 6;
      const bool has_gauges =
          caches_.size() <= k_most_with_gauges && k_lines * caches_.size() + k_for_others <= most;
      lines.push_back({mark + line_of_cache(caches_[i]), Look::strong});
      if (has_gauges) add_gauges(lines, caches_[i], columns);
      constexpr std::string_view k_indent = "  ";
      std::vector<std::string> places;
      add_places(places, caches_[i], columns - std::min(columns, k_indent.size()));
      for (const auto& place : places) lines.push_back({std::string(k_indent) + place});
    }
  }
  if (lines.size() > most && most != 0) {
    const std::size_t left = lines.size() - most + 1;
    lines.resize(most - 1);
    lines.push_back({fmt::format("and {} lines more", left)});
  }
  lines.resize(std::min(lines.size(), most));
  return lines;
}

// Adds gauges of the memory, the hit ratio, and the origin's time per file.
void TopView::add_gauges(std::vector<ScreenLine>& lines, const CacheLook& cache,
                         std::size_t columns) const {
  const double used = static_cast<double>(cache.used),
               capacity = static_cast<double>(std::max<std::uint64_t>(cache.capacity, 1));
  constexpr double k_nearly_full = 0.9, k_good_ratio = 0.9, k_fair_ratio = 0.5;
  constexpr double k_good_us = 1000, k_fair_us = 10'000;
  lines.push_back(line_of_gauge(
      {.name = "memory",
       .full = used / capacity,
       .value = fmt::format("{}/{}", short_bytes(used), short_bytes(capacity)),
       .paint = used < k_nearly_full * capacity ? Paint::good : Paint::fair,
       .rest =
           cache.large == 0 ? "" : short_bytes(static_cast<double>(cache.large)) + " large files"},
      columns));
  const auto found = courses_.find(cache.name);
  const Course course = found == courses_.end() ? Course() : found->second;
  const auto ratio = last_of(course.hit_ratio), us = last_of(course.miss_us);
  lines.push_back(
      line_of_gauge({.name = "hits",
                     .full = ratio,
                     .value = ratio ? short_value(cache::Unit::share, *ratio) : "no opens",
                     .paint = !ratio                   ? Paint::faint
                              : *ratio >= k_good_ratio ? Paint::good
                              : *ratio >= k_fair_ratio ? Paint::fair
                                                       : Paint::bad,
                     .rest = "",
                     .history = course.hit_ratio},
                    columns));
  GaugeHistory shares;
  for (const auto& value : course.miss_us) shares.push_back(share_of_latency(value));
  lines.push_back(
      line_of_gauge({.name = "origin",
                     .full = share_of_latency(us),
                     .value = us ? short_value(cache::Unit::us, *us) + " a file" : "not asked",
                     .paint = !us               ? Paint::faint
                              : *us < k_good_us ? Paint::good
                              : *us < k_fair_us ? Paint::fair
                                                : Paint::bad,
                     .rest = "",
                     .history = shares},
                    columns));
}

std::vector<ScreenLine> TopView::below(std::size_t most) const {
  std::vector<ScreenLine> lines;
  if (page_ == Page::jobs) {
    for (const auto& line : ended_) lines.push_back({line});
  }
  for (const auto& trouble : troubles_) lines.push_back({printed(trouble)});
  if (lines.size() > most) lines.erase(lines.begin(), lines.end() - static_cast<long>(most));
  return lines;
}

std::vector<ScreenLine> TopView::body(std::size_t room, std::size_t columns) {
  if (page_ == Page::jobs || page_ == Page::job) return table(room, columns);
  std::vector<std::string> text;
  std::vector<ScreenLine> lines;
  if (page_ == Page::help) {
    text.assign(std::begin(k_help), std::end(k_help));
    add_wrapped(text, k_help_on_figures, columns);
  } else {
    lines.push_back({fmt::format("{:<20} {:>8} {:>8}", "", "a second", "so far"), Look::heading});
    text = text_of_process();
  }
  shown_rows_ = room - std::min(room, lines.size());
  scrolled_ = std::min(scrolled_, text.size() - std::min(text.size(), shown_rows_));
  for (std::size_t i = scrolled_; i < text.size() && lines.size() < room; ++i)
    lines.push_back({text[i]});
  return lines;
}

std::vector<ScreenLine> TopView::table(std::size_t room, std::size_t columns) {
  const TopSet set = k_top_sets[set_];
  // The command line of the job gets the rest of the width. If the rest is too small, some figures
  // are omitted.
  constexpr std::size_t k_least_command = 16;
  constexpr std::size_t k_narrow = 64;
  const bool has_command = columns >= k_narrow;
  const auto shown = columns_for(set, columns - (has_command ? k_least_command + 1 : 0));
  std::string heading = fmt::format("{:>{}}", name_of(set), k_mark_width - 1);
  for (const TopColumn& column : shown)
    heading += fmt::format(" {:>{}}", column.heading, column.width);
  if (has_command) heading += " COMMAND";
  std::vector<ScreenLine> lines = {
      {heading + std::string(columns - std::min(columns, heading.size()), ' '), Look::heading}};
  const auto all = rows();
  shown_rows_ = std::max<std::size_t>(room, 2) - 1;
  const std::size_t chosen = this->chosen(all);
  const std::size_t first = chosen < shown_rows_ ? 0 : chosen - shown_rows_ + 1;
  for (std::size_t i = first; i < all.size() && i < first + shown_rows_; ++i) {
    std::string text = fmt::format("{}{:>{}}", all[i].mark, all[i].rise->pid, k_mark_width - 2);
    for (const TopColumn& column : shown)
      text += fmt::format(" {:>{}}", cell_of(column, *all[i].rise), column.width);
    if (has_command) text += " " + command_of_row(*all[i].rise);
    text.resize(std::max(text.size(), columns), ' ');
    lines.push_back({text, i == chosen ? Look::selected : Look::plain});
  }
  return lines;
}

// If the first process of a job is `cubeshim run`, shows the command line of its program.
const std::string& TopView::command_of_row(const JobRise& rise) {
  const auto [at, is_new] = commands_.try_emplace(rise.pid);
  if (!is_new) return at->second;
  std::string command = without_folder(command_of(rise.pid));
  if (command.starts_with("cubeshim run ") && !rise.processes.empty())
    command = without_folder(command_of(rise.processes.front().pid));
  return at->second = std::move(command);
}

std::vector<std::string> TopView::text_of_job(std::size_t columns) const {
  std::vector<std::string> lines;
  add_wrapped(lines, line_of_cache(job_.look), columns);
  const auto& totals = job_.rise.totals;
  const cache::ReportText report = cache::report_as_text(totals);
  for (std::string_view rest = report.view(); !rest.empty();) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    constexpr std::string_view k_begin = "cubeshim: ";
    if (line.starts_with(k_begin)) line.remove_prefix(k_begin.size());
    add_wrapped(lines, printed(std::string(line)), columns);
  }
  const auto count = [&](base::Counter counter) {
    return short_count(static_cast<double>(totals.totals[counter]));
  };
  using base::Counter;
  if (totals.totals[Counter::prefetch_fetched] != 0)
    add_wrapped(lines,
                fmt::format("prefetch: {} files, {} early, {} late, {} wasted, {} not opened yet",
                            count(Counter::prefetch_fetched), count(Counter::prefetch_early),
                            count(Counter::prefetch_late), count(Counter::prefetch_wasted),
                            short_count(static_cast<double>(totals.unread))),
                columns);
  add_places(lines, job_.look, columns);
  return lines;
}

std::vector<std::string> TopView::text_of_process() const {
  std::vector<std::string> lines;
  for (const auto& figure : cache::figures()) {
    if (!figure.is_count() || figure.tier != cache::Figure::k_no_tier) continue;
    const double whole = figure.real_of(process_.rise.totals);
    if (whole == 0) continue;
    const double rate = figure.real_of(process_.rise.rise) / process_.rise.seconds;
    const std::string name =
        fmt::format("{}{}{}", figure.group, figure.group.empty() ? "" : ".", figure.name);
    lines.push_back(fmt::format("{:<20} {:>8} {:>8}", name, short_value(figure.unit, rate),
                                short_value(figure.unit, whole)));
  }
  if (lines.empty()) lines.emplace_back("it has opened no file below a prefix yet");
  return lines;
}

}  // namespace cube::cli
