#include "cache/report/write_report.h"

#include <fmt/core.h>

#include <cerrno>
#include <climits>
#include <cstring>

#include "cache/base/clock.h"
#include "cache/base/error_text.h"
#include "cache/base/unique_fd.h"
#include "cache/report/classic_report.h"
#include "cache/report/json_report.h"
#include "cache/report/text_report.h"

namespace cube::cache {
namespace {

// Replaces %p by the pid. False: the path is too long.
bool expand(std::string_view pattern, std::uint32_t pid, char (&path)[PATH_MAX]) {
  std::size_t n = 0;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const bool is_pid = pattern[i] == '%' && i + 1 < pattern.size() && pattern[i + 1] == 'p';
    const std::size_t room = sizeof path - n;
    n += is_pid ? fmt::format_to_n(path + n, room, "{}", pid).size
                : fmt::format_to_n(path + n, room, "{}", pattern[i]).size;
    if (n >= sizeof path) return false;
    if (is_pid) ++i;
  }
  path[n] = '\0';
  return true;
}

// Whether another user may have planted the file so that this process writes to it. Such a file
// lies in a directory to which all users may write, and belongs to another user or has a second
// name. If fs.protected_regular is set, the kernel itself refuses such a file.
bool may_be_planted(const char* path, const struct ::stat& file) {
  char directory[PATH_MAX];
  const std::string_view text(path);
  const std::string_view parent =
      text.substr(0, text.rfind('/') + 1);  // empty: the working directory
  *fmt::format_to_n(directory, sizeof directory - 1, "{}.", parent).out = '\0';
  struct ::stat st {};
  if (base::sys::failed(base::sys::fstatat(AT_FDCWD, directory, &st, 0)) ||
      (st.st_mode & S_IWOTH) == 0)
    return false;
  const bool stranger =
      file.st_uid != static_cast<uid_t>(base::sys::raw(SYS_geteuid)) && file.st_uid != st.st_uid;
  return stranger || file.st_nlink != 1;
}

// Opens without waiting, because the program is about to end: an open could wait for the reader of
// a FIFO or for the holder of a lease.
base::Result<base::UniqueFd> open_report(const char* path) {
  auto file =
      base::open_fd(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0644);
  if (!file) return file;
  struct ::stat st {};
  if (base::sys::failed(base::sys::fstat(file->get(), &st))) return base::fail(EIO);
  const bool is_regular = S_ISREG(st.st_mode);
  if (!is_regular && !S_ISFIFO(st.st_mode) && !S_ISCHR(st.st_mode)) return base::fail(EPERM);
  if (is_regular && may_be_planted(path, st)) return base::fail(EPERM);
  return file;
}

}  // namespace

base::Result<base::UniqueFd> open_report_file(std::string_view pattern, std::uint32_t pid,
                                              char (&path)[PATH_MAX]) {
  path[0] = '\0';
  return expand(pattern, pid, path) ? open_report(path) : base::fail(ENAMETOOLONG);
}

namespace {

void write_out(const base::Config& config, std::uint32_t pid, std::string_view text) {
  if (config.stats == "stderr") return base::write_to_stderr(text);
  char path[PATH_MAX];
  const auto complain = [&](long error) {
    base::log(base::LogLevel::warn, "CUBESHIM_STATS: cannot write {}: {}", path,
              base::text_of_error(static_cast<int>(error)));
  };
  if (!expand(config.stats, pid, path)) return;
  const auto file = open_report(path);
  if (!file) return complain(file.error().value);
  const long n = base::write_quietly(file->get(), text);
  if (n != static_cast<long>(text.size())) complain(base::sys::failed(n) ? -n : ENOSPC);
}

void write_out(const base::Config& config, std::uint32_t pid, ReportText text) {
  if (config.stats == "stderr") return base::write_lines_to_stderr(text.bytes, text.size);
  write_out(config, pid, text.view());
}

}  // namespace

void write_report(Region& region, std::uint32_t job, const base::Config& config, std::uint32_t pid,
                  bool has_opened_many) {
  if (config.stats == "off") return;
  JobRow& row = region.job_row(job);
  const JobTotals totals = collect(region, job);
  const std::uint64_t last_requests =
      row.reported_requests.exchange(totals.requests(), std::memory_order_relaxed);
  const std::uint64_t last_hits =
      row.reported_hits.exchange(totals.hits(), std::memory_order_relaxed);
  const bool is_classic = config.stats_format == base::StatsFormat::classic;
  if (config.stats_format == base::StatsFormat::json) {
    write_out(config, pid, report_as_json(totals).view());
  } else if (totals.opens() != 0 || config.stats != "stderr" || totals.misspelled[0] != '\0' ||
             has_opened_many) {
    write_out(config, pid,
              is_classic ? report_as_classic(totals, last_requests, last_hits, config.prefixes)
                         : report_as_text(totals, config.prefixes));
  }
}

void write_last_report(Region& region, std::uint32_t job, const base::Config& config,
                       bool has_opened_many) {
  JobRow& row = region.job_row(job);
  if (row.told.exchange(1, std::memory_order_relaxed) == 0)
    write_report(region, job, config, row.leader.pid, has_opened_many);
}

void write_empty_report(const base::Config& config, std::uint32_t pid, bool has_opened_many) {
  if (config.stats == "off") return;
  if (config.stats_format == base::StatsFormat::json)
    return write_out(config, pid, report_as_json({}).view());
  if (!has_opened_many) return;
  if (config.stats_format == base::StatsFormat::text)
    return write_out(config, pid, report_as_text({}, config.prefixes));
  ReportText text;
  append_classic_served(text, {}, config.prefixes);
  write_out(config, pid, text);
}

bool report_interval_passed(Region& region, std::uint32_t job, std::uint64_t interval_seconds) {
  std::atomic<std::uint64_t>& next = region.job_row(job).next_report_ns;
  const std::uint64_t now = base::coarse_monotonic_ns();
  std::uint64_t due = next.load(std::memory_order_relaxed);
  if (now < due) return false;
  const bool first = due == 0;  // the first interval begins with the first call
  return next.compare_exchange_strong(due, now + interval_seconds * 1'000'000'000ULL,
                                      std::memory_order_relaxed) &&
         !first;
}

}  // namespace cube::cache
