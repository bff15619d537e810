// The planned files that wait for their fetch, and how far each reader is ahead: how many of its
// files were begun and are not yet read, dropped or refused. If room is scarce, the reader that is
// least ahead comes first, so a stalled reader holds up nobody. Thread safety: none; the owner's
// lock guards it.
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
  // Whether to take a file of this reader although the queue is full: nothing can begin, and the
  // queue is full of other readers' files.
  bool takes_beyond(std::uint32_t reader) const;

  // Throws std::bad_alloc if there is no memory; the file is unchanged then.
  void add(PlannedFile& file);
  // Puts back a file that had begun but must wait after all, in front of its reader's later files.
  void put_back(PlannedFile& file);
  // Returns a place. The queue must not be empty.
  std::size_t first_of_least_ahead() const;
  PlannedFile& at(std::size_t place) { return files_[place]; }
  const PlannedFile& at(std::size_t place) const { return files_[place]; }
  // The file at this place has begun.
  void take(std::size_t place, std::uint32_t reader);
  // This many files that had begun were read, dropped or refused.
  void note_over(std::uint32_t reader, std::uint32_t files);
  // True if another reader is more than twice as far ahead.
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

  std::deque<PlannedFile> files_;  // each reader's files in order
  std::vector<ReaderRow> rows_;
};

}  // namespace cube::prefetch
