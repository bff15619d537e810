// Progress lines for the terminal (CUBESHIM_PROGRESS): after each interval, one line shows how far
// the cache of a job is filled. The last line is shown when almost nothing new is fetched.
// Thread-safe. If two threads call look() at the same time, one of them gets no line.
#pragma once

#include <atomic>
#include <cstdint>

#include "cache/report/job_totals.h"
#include "cache/report/report_text.h"

namespace cube::cache {

// Returns the line for an interval, such as "cubeshim: 2.0 min: 9000 opens, 61 % from the cache;
// 5.3 GiB cached (44 % of the room); mount 2.4 ms a file; waited 31.0 s for it". `before` and `now`
// are the totals at the start and at the end of the interval.
ReportText progress_text(const JobTotals& before, const JobTotals& now);

class Progress {
 public:
  // `every_ns`: the length of an interval. 0: each call of look() ends an interval.
  explicit Progress(std::uint64_t every_ns) : every_ns_(every_ns) {}
  // If the interval has passed, begins the next interval and returns the line to show. Empty: there
  // is no line to show, because the interval has not passed, nothing was opened, or the last line
  // was shown. The line begins with a code that erases the current line of the terminal, where a
  // program may have written a progress bar.
  ReportText look(Region& region, std::uint32_t job, std::uint64_t now_ns);

 private:
  ReportText look_alone(Region& region, std::uint32_t job, std::uint64_t now_ns);

  const std::uint64_t every_ns_;
  std::atomic<bool> is_busy_{false};
  std::uint64_t next_ns_ = 0;
  bool is_over_ = false;
  JobTotals before_;
};

}  // namespace cube::cache
