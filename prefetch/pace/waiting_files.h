// The files of the plan that wait for their fetch, and how far each reader is ahead: how many of
// his files were begun and are not read, dropped or refused yet. The reader who is least ahead
// comes first if room is scarce, so that one who stands still holds up nobody. Thread safety: none;
// its owner's lock guards it.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "prefetch/order/path_source.h"

namespace cube::prefetch {

class WaitingFiles {
 public:
  bool is_empty() const { return files_.empty(); }
  std::size_t size() const { return files_.size(); }
  bool is_full() const { return files_.size() >= k_most; }
  bool is_running_low() const { return files_.size() < k_most / 2; }
  // For when nothing can begin, and it is full of files of others.
  bool takes_beyond(std::uint32_t reader) const;

  // std::bad_alloc where there is no memory; the file is as it was then.
  void add(PlannedFile& file);
  // It has begun and has to wait after all: in front of what its reader wants later.
  void put_back(PlannedFile& file);
  // A place; there must be one.
  std::size_t first_of_least_ahead() const;
  PlannedFile& at(std::size_t place) { return files_[place]; }
  const PlannedFile& at(std::size_t place) const { return files_[place]; }
  // It has begun.
  void take(std::size_t place, std::uint32_t reader);
  // So many that had begun are read, dropped or refused.
  void note_over(std::uint32_t reader, std::uint32_t files);
  // Another reader is more than twice as far ahead.
  bool is_far_behind(std::uint32_t reader) const;
  std::optional<std::uint64_t> first_of(std::uint32_t reader) const;
  void clear();

 private:
  static constexpr std::size_t k_most = 256, k_of_each_beyond = 64;
  struct ReaderRow {
    std::uint32_t reader = 0;
    std::uint64_t waiting = 0, ahead = 0;  // files
  };
  ReaderRow& row_of(std::uint32_t reader);

  std::deque<PlannedFile> files_;  // each reader's in its order
  std::vector<ReaderRow> rows_;
};

}  // namespace cube::prefetch
