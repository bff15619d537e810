// One pass of `cubeshim bench`: performs an operation on each path, with a given number of
// operations in flight, and measures the time of each operation. Thread safety: pure functions,
// which start their own threads.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace cube::cli {

// The times of operations, in nanoseconds.
class Timings {
 public:
  void add(std::uint64_t ns) { all_.push_back(ns); }
  void take(const Timings& others) {
    all_.insert(all_.end(), others.all_.begin(), others.all_.end());
  }
  std::size_t count() const { return all_.size(); }
  // Returns the quantile `q` of the times in microseconds, or 0 if there are no times.
  double us(double q) const;
  const std::vector<std::uint64_t>& all() const { return all_; }

 private:
  std::vector<std::uint64_t> all_;
};

struct PassOptions {
  unsigned in_flight = 1;
  std::uint64_t until_ns = UINT64_MAX;  // monotonic clock; operations in flight are completed
  std::uint64_t max_file = UINT64_MAX;  // larger files are closed unread
  bool drop_pages = false;              // asks the kernel, after the open, to drop the file's pages
};

struct Pass {
  unsigned in_flight = 0;
  Timings open, read, whole;         // whole: from the start of an operation to its end
  std::vector<std::uint64_t> sizes;  // the sizes of the files that were read
  std::uint64_t bytes = 0, too_large = 0, failed = 0;
  std::string first_failure;
  double seconds = 0;  // wall time from the start of the first operation to the end of the last

  double per_second() const {
    return seconds > 0 ? static_cast<double>(whole.count()) / seconds : 0;
  }
  double bytes_per_second() const { return seconds > 0 ? static_cast<double>(bytes) / seconds : 0; }
};

// Opens, stats, reads to the end and closes each file.
Pass read_files(std::span<const std::string> paths, const PassOptions& options);
Pass stat_files(std::span<const std::string> paths, const PassOptions& options);

}  // namespace cube::cli
