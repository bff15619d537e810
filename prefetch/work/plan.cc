#include "prefetch/work/plan.h"

namespace cube::prefetch {
namespace {

bool is_announced(std::uint32_t reader) {
  return reader != ListSource::k_reader && reader != ListingSource::k_reader;
}

}  // namespace

std::optional<std::uint32_t> Plan::next_reader() {
  const auto announced = announcements_ != nullptr ? announcements_->next_reader() : std::nullopt;
  return announced || list_ == nullptr ? announced : ListSource::k_reader;
}

PathSource::Next Plan::next(PlannedFile& file) {
  // A source sets only the fields that it knows. The others must be reset, so that the limits of
  // one file do not apply to the next file.
  file = {};
  if (announcements_ != nullptr && announcements_->next(file) == Next::file) return Next::file;
  if (list_ != nullptr) return list_->next(file);
  return listings_.next(file);
}

std::uint64_t Plan::passed(std::uint32_t reader) {
  return announcements_ != nullptr && is_announced(reader) ? announcements_->passed(reader) : 0;
}

void Plan::settle(const std::vector<Settled>& rows) {
  if (announcements_ == nullptr) return;
  for (const Settled& row : rows) {
    if (is_announced(row.reader)) announcements_->settled(row.reader, row.files);
  }
}

void Plan::refused(const std::vector<RefusedFile>& files) {
  for (const RefusedFile& refused : files) {
    const std::string& path = refused.file.path;
    if (announcements_ != nullptr && is_announced(refused.file.reader) &&
        refused.why == Refused::bad_range)
      announcements_->refuse(Refusal::bad_range, path);
    if (list_ == nullptr || refused.file.reader != ListSource::k_reader) continue;
    switch (refused.why) {
      case Refused::directory: list_->walk(refused.file); break;
      case Refused::missing: list_->refuse(Refusal::missing, path, refused.error); break;
      case Refused::failed: list_->refuse(Refusal::unreadable, path, refused.error); break;
      case Refused::not_a_file: list_->refuse(Refusal::not_a_file, path, 0); break;
      case Refused::bad_range: list_->refuse(Refusal::bad_range, path, 0); break;
      case Refused::too_large:
      case Refused::no_room:
      case Refused::busy: break;
    }
  }
}

bool Plan::all_is_known() { return list_ != nullptr && list_->all_is_known(); }

}  // namespace cube::prefetch
