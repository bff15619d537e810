#include "shim/cli/warmup/progress.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "cache/base/clock.h"
#include "shim/cli/commands.h"
#include "shim/cli/complaint.h"
#include "shim/cli/settings.h"
#include "shim/cli/shell/wrap.h"
#include "shim/cli/wrong_use.h"

namespace cube::cli {
namespace {

constexpr std::uint64_t k_second = 1'000'000'000;

std::size_t terminal_width() {
  const std::size_t columns = columns_of(STDERR_FILENO);
  return columns != 0 ? columns : 80;
}

std::string clock_text(double seconds) {
  const auto s = std::llround(seconds);
  return s < 3600 ? fmt::format("{}:{:02}", s / 60, s % 60)
                  : fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}

}  // namespace

void Rate::add(const Tally& tally, std::uint64_t now_ns) {
  constexpr std::uint64_t k_between = k_second / 4, k_window = 10 * k_second;
  if (!samples_.empty() && now_ns - samples_.back().ns < k_between) return;
  samples_.push_back({now_ns, tally.files, tally.bytes});
  while (samples_.size() > 2 && now_ns - samples_.front().ns > k_window) samples_.pop_front();
  const Sample& first = samples_.front();
  const double seconds = static_cast<double>(now_ns - first.ns) / static_cast<double>(k_second);
  if (seconds <= 0) return;
  files_ = static_cast<double>(tally.files - first.files) / seconds;
  bytes_ = static_cast<double>(tally.bytes - first.bytes) / seconds;
}

double Tally::expected_bytes() const {
  const std::uint64_t known = files + measured_files;
  const std::uint64_t unknown = total_files - std::min(total_files, known);
  const double mean =
      known == 0 ? 0 : static_cast<double>(bytes + bytes_to_come) / static_cast<double>(known);
  return static_cast<double>(bytes_to_come) +
         (is_bytes_final ? 0 : mean * static_cast<double>(unknown));
}

std::string progress_text(const Tally& tally, const Rate& rate, bool is_short) {
  std::string text = fmt::format("{}", tally.files);
  if (tally.total_files != 0)
    text += fmt::format(" of {}{}", tally.is_total_final ? "" : "at least ", tally.total_files);
  text += fmt::format(" files, {}", in_units(tally.bytes));
  if (tally.has_large)
    text += fmt::format(" of {}{}", tally.is_bytes_final ? "" : "at least ",
                        in_units(tally.bytes + tally.bytes_to_come));
  text += fmt::format(", {}/s", in_units(static_cast<std::uint64_t>(rate.bytes())));
  if (!is_short) text += fmt::format(", {:.0f} files/s", rate.files());
  if (!tally.is_total_final || tally.total_files < tally.files) return text;
  if (tally.has_large && rate.bytes() > 0) {
    text += fmt::format(", {} left", clock_text(tally.expected_bytes() / rate.bytes()));
  } else if (rate.files() > 0) {
    text += fmt::format(
        ", {} left",
        clock_text(static_cast<double>(tally.total_files - tally.files) / rate.files()));
  }
  return text;
}

void add_progress_options(CLI::App& command, ProgressOptions& options) {
  command.add_flag("-q,--quiet", options.quiet, "Show no progress");
  add_value(command, "--interval", "SECONDS", options.interval,
            "Between lines of progress where stderr is not a terminal; the default is 10")
      ->check(whole_number(1, 86400));
}

Progress::Progress(const ProgressOptions& options)
    : kind_(options.quiet                ? Kind::none
            : isatty(STDERR_FILENO) != 0 ? Kind::bar
                                         : Kind::lines) {
  every_ns_ = kind_ == Kind::bar ? k_second / 10 : options.interval * k_second;
  next_ns_ = base::monotonic_ns() + (kind_ == Kind::bar ? 0 : every_ns_);
}

void Progress::show(const Tally& tally) {
  if (kind_ == Kind::none) return;
  const std::uint64_t now = base::monotonic_ns();
  rate_.add(tally, now);
  if (now < next_ns_) return;
  next_ns_ = now + every_ns_;
  draw(tally);
}

void Progress::draw(const Tally& tally) {
  std::string text = progress_text(tally, rate_);
  if (kind_ == Kind::lines) {
    tell("cubeshim: {}\n", text);
    return;
  }
  const std::size_t width = terminal_width();
  std::string line;
  // The width of "[" and "] 100 % ", and the last column, at which some terminals wrap.
  constexpr std::size_t k_around = 10, k_widest = 20, k_narrowest = 6;
  if (text.size() + k_around + k_narrowest > width) text = progress_text(tally, rate_, true);
  const std::size_t bar = std::min(k_widest, width - std::min(width, text.size() + k_around));
  if (tally.is_total_final && tally.total_files != 0 && bar >= k_narrowest) {
    const double all = static_cast<double>(tally.bytes) + tally.expected_bytes();
    const bool by_bytes = tally.has_large && all > 0;
    const double share =
        by_bytes ? static_cast<double>(tally.bytes) / all
                 : static_cast<double>(tally.files) / static_cast<double>(tally.total_files);
    const auto done = [&](std::size_t of) {
      return static_cast<std::size_t>(static_cast<double>(of) * std::min(share, 1.0));
    };
    line = fmt::format("[{:<{}}] {:3} % ", std::string(done(bar), '#'), bar, done(100));
  }
  line = (line + text).substr(0, width - 1);
  // "\r" returns to the start of the line, and "\x1b[K" erases the rest of the old text.
  tell("\r{}\x1b[K", line);
  std::fflush(stderr);
  is_drawn_ = true;
}

void Progress::clear() noexcept {
  if (!is_drawn_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
  is_drawn_ = false;
}

}  // namespace cube::cli
