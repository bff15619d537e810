#include "prefetch/pace/waiting_files.h"

#include <algorithm>
#include <utility>

namespace cube::prefetch {

WaitingFiles::ReaderRow& WaitingFiles::row_of(std::uint32_t reader) {
  const auto at = std::ranges::find(rows_, reader, &ReaderRow::reader);
  return at != rows_.end() ? *at : rows_.emplace_back(ReaderRow{.reader = reader});
}

bool WaitingFiles::takes_beyond(std::uint32_t reader) const {
  const auto at = std::ranges::find(rows_, reader, &ReaderRow::reader);
  return files_.size() < 2 * k_most && (at == rows_.end() || at->waiting < k_of_each_beyond);
}

void WaitingFiles::add(PlannedFile& file) {
  ReaderRow& row = row_of(file.reader);
  files_.push_back(std::move(file));
  ++row.waiting;
}

void WaitingFiles::put_back(PlannedFile& file) {
  ReaderRow& row = row_of(file.reader);
  const auto is_sooner = [&](const PlannedFile& other) {
    return other.reader == file.reader && other.sequence < file.sequence;
  };
  // Insert behind the reader's last earlier file: one that was put back before and comes earlier
  // must stay in front.
  const auto last_sooner = std::find_if(files_.rbegin(), files_.rend(), is_sooner);
  files_.insert(last_sooner.base(), std::move(file));
  ++row.waiting;
  row.ahead -= std::min<std::uint64_t>(row.ahead, 1);
}

std::size_t WaitingFiles::first_of_least_ahead() const {
  const ReaderRow* least = nullptr;
  for (const ReaderRow& row : rows_) {
    if (row.waiting != 0 && (least == nullptr || row.ahead < least->ahead)) least = &row;
  }
  if (least == nullptr) return 0;
  const auto at = std::ranges::find(files_, least->reader, &PlannedFile::reader);
  return static_cast<std::size_t>(at - files_.begin());
}

void WaitingFiles::take(std::size_t place, std::uint32_t reader) {
  files_.erase(files_.begin() + static_cast<std::ptrdiff_t>(place));
  ReaderRow& row = row_of(reader);
  --row.waiting;
  ++row.ahead;
}

void WaitingFiles::note_over(std::uint32_t reader, std::uint32_t files) {
  const auto at = std::ranges::find(rows_, reader, &ReaderRow::reader);
  if (at == rows_.end()) return;
  at->ahead -= std::min<std::uint64_t>(at->ahead, files);
  if (at->waiting != 0 || at->ahead != 0) return;
  *at = rows_.back();
  rows_.pop_back();
}

bool WaitingFiles::is_far_behind(std::uint32_t reader) const {
  const auto own = std::ranges::find(rows_, reader, &ReaderRow::reader);
  const auto most = std::ranges::max_element(rows_, {}, &ReaderRow::ahead);
  return own != rows_.end() && own->ahead < most->ahead / 2;
}

std::optional<std::uint64_t> WaitingFiles::first_of(std::uint32_t reader) const {
  const auto at = std::ranges::find(files_, reader, &PlannedFile::reader);
  return at != files_.end() ? std::optional(at->sequence) : std::nullopt;
}

void WaitingFiles::clear() {
  files_.clear();
  rows_.clear();
}

}  // namespace cube::prefetch
