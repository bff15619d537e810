#include "prefetch/order/list_source.h"

#include <algorithm>

namespace cube::prefetch {

std::unique_ptr<ListSource> ListSource::open(PathListOptions options, std::uint64_t from,
                                             bool (*repeats)(void*), void* argument,
                                             std::string& why) {
  std::unique_ptr<ListSource> source(new ListSource);
  source->options_ = std::move(options);
  source->skip_ = from;
  source->repeats_ = repeats;
  source->argument_ = argument;
  source->list_ = PathList::open(source->options_, why);
  if (source->list_ == nullptr) return nullptr;
  if (from == k_all) {
    // The first round has been completed, so the source begins with a later round.
    source->first_round_ = false;
    source->is_told_ = true;
    source->is_over_ = !repeats(argument);
  }
  return source;
}

bool ListSource::all_is_known() {
  if (!is_round_over_) return false;
  log();
  // Does not repeat the list after a round without any file, because the next round would have no
  // file either. The exception is a round that a previous leader had already completed.
  const bool gave = sequence_ != began_at_ || (first_round_ && given_ != 0);
  const bool again = gave && repeats_(argument_);
  first_round_ = false;
  is_round_over_ = false;
  began_at_ = sequence_;
  std::string why;
  list_ = again ? PathList::open(options_, why) : nullptr;
  is_over_ = list_ == nullptr;
  return true;
}

PathSource::Next ListSource::next(PlannedFile& file) {
  PathEntry entry;
  while (!is_over_ && !is_round_over_) {
    if (list_->next(entry) != PathList::Next::entry) {
      is_round_over_ = true;
      break;
    }
    if (first_round_ && ++given_ <= skip_) continue;
    if (first_round_) note_walk(entry);
    file.path = entry.path;
    file.reader = k_reader;
    file.must_stay = false;
    file.sequence = sequence_++;
    return Next::file;
  }
  return is_over_ ? Next::end : Next::none_yet;
}

void ListSource::note_walk(const PathEntry& entry) {
  if (!walks_.empty() && walks_.back().begin == entry.walk) return;
  if (!walks_.empty()) walks_.back().end = std::min(walks_.back().end, entry.sequence);
  if (entry.walk != PathEntry::k_no_walk) walks_.push_back({.begin = entry.walk});
}

std::uint64_t ListSource::dealt_with(std::uint64_t unended) {
  if (!first_round_) return k_all;
  std::uint64_t entries = std::min(given_, first_directory_);
  if (unended != k_all) entries = std::min(entries, skip_ + unended);
  while (!walks_.empty() && walks_.front().end <= entries) walks_.pop_front();
  return walks_.empty() ? entries : std::min(entries, walks_.front().begin);
}

void ListSource::walk(const PlannedFile& directory) {
  if (list_ == nullptr) return;
  if (first_round_) first_directory_ = std::min(first_directory_, skip_ + directory.sequence);
  list_->walk(directory.path);
  is_round_over_ = false;
}

void ListSource::refuse(Refusal reason, const std::string& path, int error) {
  if (list_ != nullptr && first_round_) list_->refuse(reason, path, error);
}

void ListSource::log() {
  if (!std::exchange(is_told_, true) && list_ != nullptr) list_->log();
}

}  // namespace cube::prefetch
