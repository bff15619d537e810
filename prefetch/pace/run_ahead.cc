#include "prefetch/pace/run_ahead.h"

namespace cube::prefetch {

bool RunAhead::takes_beyond(std::uint32_t reader) const {
  const auto at = readers_.find(reader);
  return waiting_.size() < 2 * k_most &&
         (at == readers_.end() || at->second.waiting < k_of_each_beyond);
}

void RunAhead::add(PlannedFile& file) {
  Reader& reader = readers_[file.reader];
  unended_.emplace(file.reader, file.sequence);
  waiting_.push_back(std::move(file));
  ++reader.waiting;
}

std::size_t RunAhead::first_of_least_ahead() const {
  const auto least = std::ranges::min_element(readers_, {}, [](const auto& row) {
    return row.second.waiting != 0 ? row.second.ahead : UINT64_MAX;
  });
  const auto at = std::ranges::find(waiting_, least->first, &PlannedFile::reader);
  return static_cast<std::size_t>(at - waiting_.begin());
}

void RunAhead::begin(std::size_t place, std::uint32_t reader) {
  waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(place));
  Reader& row = readers_[reader];
  --row.waiting;
  ++row.ahead;
}

void RunAhead::put_back(PlannedFile& file) {
  const auto is_sooner = [&](const PlannedFile& other) {
    return other.reader == file.reader && other.sequence < file.sequence;
  };
  // Inserts the file after all earlier files of its reader, because an earlier file that was put
  // back must stay in front.
  const auto last_sooner = std::find_if(waiting_.rbegin(), waiting_.rend(), is_sooner);
  Reader& reader = readers_[file.reader];
  waiting_.insert(last_sooner.base(), std::move(file));
  ++reader.waiting;
  reader.ahead -= std::min<std::uint64_t>(reader.ahead, 1);
}

void RunAhead::end(std::uint32_t reader, std::uint64_t sequence) {
  if (const auto at = unended_.find({reader, sequence}); at != unended_.end()) unended_.erase(at);
}

void RunAhead::clear() {
  for (const PlannedFile& file : waiting_) {
    end(file.reader, file.sequence);
    --readers_[file.reader].waiting;
  }
  waiting_.clear();
}

std::optional<std::uint64_t> RunAhead::first_unended(std::uint32_t reader) const {
  const auto at = unended_.lower_bound({reader, 0});
  return at != unended_.end() && at->first == reader ? std::optional(at->second) : std::nullopt;
}

void RunAhead::settle(std::uint32_t reader, std::uint32_t files) {
  Reader& row = readers_[reader];
  row.ahead -= std::min<std::uint64_t>(row.ahead, files);
  row.settled += files;
}

std::vector<Settled> RunAhead::take_settled() {
  std::vector<Settled> settled;
  for (auto& [reader, row] : readers_) {
    if (row.settled != 0) settled.push_back({reader, std::exchange(row.settled, 0)});
  }
  std::erase_if(readers_,
                [](const auto& row) { return row.second.waiting == 0 && row.second.ahead == 0; });
  return settled;
}

bool RunAhead::is_far_behind(std::uint32_t reader) {
  return std::ranges::any_of(readers_, [own = readers_[reader].ahead](const auto& other) {
    return own < other.second.ahead / 2;
  });
}

bool RunAhead::take_room(unsigned unasked, std::uint64_t now_ns) {
  if (credit_ < average_) {
    const std::uint64_t room = ahead_.ring_room(), of_segment = ahead_.segment_bytes();
    if (room <= room_then_ && now_ns < not_before_ns_) return false;
    // A record lies in one segment, so the ends of the segments stay empty.
    const std::uint64_t fit =
        room / of_segment * (of_segment / average_) + room % of_segment / average_;
    credit_ = fit > unasked ? (fit - unasked) * average_ : 0;
  }
  if (credit_ < average_) return false;
  credit_ -= average_;
  return true;
}

void RunAhead::note_placed(std::uint64_t bytes) {
  pause_ns_ = k_first_pause_ns;
  not_before_ns_ = 0;
  const auto of_record = std::min(bytes, most_bytes());
  average_ += (static_cast<std::int64_t>(of_record) - static_cast<std::int64_t>(average_)) / 16;
}

void RunAhead::note_no_room(std::uint64_t bytes, std::uint64_t now_ns) {
  credit_ = 0;
  // Raises the average: otherwise the next file of this size would also be fetched from another
  // node in vain.
  average_ = std::max(average_, std::min(bytes, most_bytes()));
  if (now_ns < not_before_ns_) return;
  room_then_ = ahead_.ring_room();
  not_before_ns_ = now_ns + pause_ns_;
  pause_ns_ = std::min(2 * pause_ns_, k_longest_pause_ns);
}

}  // namespace cube::prefetch
