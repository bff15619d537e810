// Shows the progress of a long command on stderr: as a bar that is redrawn if stderr is a terminal,
// otherwise as plain lines. Thread safety: one thread.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <deque>
#include <string>

namespace cube::cli {

struct Tally {
  std::uint64_t files = 0;  // files handled
  std::uint64_t bytes = 0;
  std::uint64_t total_files = 0;  // files counted so far
  bool is_total_final = false;
  // The number of large files in flight whose size is known, and their remaining bytes. `has_large`
  // is true if there are large files. `is_bytes_final` is true if all sizes are known.
  std::uint64_t measured_files = 0, bytes_to_come = 0;
  bool has_large = false, is_bytes_final = false;

  // Returns the remaining bytes, with an estimate for files of unknown size.
  double expected_bytes() const;
};

// The rate of files and bytes per second over the last few seconds, so that a slow start does not
// count forever.
class Rate {
 public:
  void add(const Tally& tally, std::uint64_t now_ns);
  double files() const { return files_; }
  double bytes() const { return bytes_; }

 private:
  struct Sample {
    std::uint64_t ns = 0, files = 0, bytes = 0;
  };
  std::deque<Sample> samples_;
  double files_ = 0, bytes_ = 0;
};

// Returns "412 of 1000 files, 1.2 GiB [of at least 7.0 GiB], 310.0 MiB/s, 2100 files/s, 0:05 left".
// If `is_short` is true, omits the files per second.
std::string progress_text(const Tally& tally, const Rate& rate, bool is_short = false);

struct ProgressOptions {
  bool quiet = false;      // shows nothing
  unsigned interval = 10;  // seconds between lines if stderr is not a terminal
};

// Adds the common options of commands that show progress. `options` must outlive the parser.
void add_progress_options(CLI::App& command, ProgressOptions& options);

class Progress {
 public:
  explicit Progress(const ProgressOptions& options);
  ~Progress() { clear(); }
  void show(const Tally& tally);
  // Removes the bar.
  void clear() noexcept;
  bool is_shown() const { return kind_ != Kind::none; }

 private:
  enum class Kind { none, bar, lines };
  void draw(const Tally& tally);

  Kind kind_;
  std::uint64_t every_ns_, next_ns_;
  Rate rate_;
  bool is_drawn_ = false;
};

}  // namespace cube::cli
