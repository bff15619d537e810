// The progress lines of a job: a line for the terminal after each interval, while the cache fills
// (CUBESHIM_PROGRESS). The lines end when almost nothing is fetched any longer. Thread-safe. If two
// threads call look() at the same time, one of them gets no line.
#pragma once

#include <atomic>
#include <cstdint>

#include "cache/report/job_totals.h"
#include "cache/report/report_text.h"

namespace cube::cache {

// "cubeshim: 2.0 min: 9000 opens, 61 % from the cache; 5.3 GiB cached (44 % of the room); mount 2.4
// ms a file; waited 31.0 s for it". `before` and `now` are the totals at both ends of the interval.
ReportText progress_text(const JobTotals& before, const JobTotals& now);

class Progress {
 public:
  // 0: each call of look() ends an interval.
  explicit Progress(std::uint64_t every_ns) : every_ns_(every_ns) {}
  // Ends the interval if it has passed, and returns the line that is due. Empty: no line is due,
  // because the interval has not passed, nothing was opened, or the lines have ended. The line
  // begins with a code that erases the current line of the terminal, where another program may have
  // written a progress bar.
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
