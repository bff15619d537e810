#include "cache/metadata/stat_gather.h"

#include <dirent.h>
#include <sys/vfs.h>

#include <cerrno>
#include <climits>
#include <cstring>

#include "cache/base/clock.h"
#include "cache/origin/kept_attributes.h"
#include "cache/region/writers.h"

namespace cube::cache {
namespace {

std::uint32_t known_of(const MountMetadata& metadata, const Record& listing,
                       const DirectoryData& data) {
  const Pin table = metadata.stats_of(listing.path());
  if (!table) return 0;
  const std::uint64_t hash = StatTable::hash_of_listing(listing);
  std::uint32_t current = 0;
  for (std::uint32_t i = 0; i < data.count(); ++i) {
    const auto* const entry = StatTable::find(*table, hash, i);
    if (entry != nullptr && metadata.is_current(*entry)) ++current;
  }
  return current;
}

// Whether nearly all stats of the entries are fresh.
bool is_known(const MountMetadata& metadata, const Record& listing, const DirectoryData& data) {
  // "." and ".." have no stats.
  return known_of(metadata, listing, data) + 2 + data.count() / 8 >= data.count() &&
         metadata.stats_of(listing.path());
}

}  // namespace

std::uint32_t StatGather::count_known(MountMetadata& metadata, const std::string& directory) {
  const Pin listing = metadata.listing_of(directory, directory.c_str());
  const auto data = listing ? DirectoryData::of(*listing) : std::nullopt;
  return data ? known_of(metadata, *listing, *data) : 0;
}

std::unique_ptr<StatGather> StatGather::begin(MountMetadata& metadata, const std::string& directory,
                                              std::string_view asked, std::uint32_t most) {
  try {
    Pin listing = metadata.listing_of(directory, directory.c_str());
    const auto data = listing ? DirectoryData::of(*listing) : std::nullopt;
    // If the program has asked for a name that does not exist, nothing is gathered.
    const bool is_wanted =
        data && (asked.empty() ? data->count() <= most : data->find(asked).has_value());
    if (!is_wanted || is_known(metadata, *listing, *data)) return nullptr;
    SingleFlight::Ticket flight;
    if (!metadata.begin_gather(directory, flight)) return nullptr;
    // Another process may have gathered the stats before this process got the flight.
    if (is_known(metadata, *listing, *data)) return nullptr;
    return std::unique_ptr<StatGather>(
        new StatGather(metadata, directory, std::move(listing), *data, std::move(flight)));
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

StatGather::StatGather(MountMetadata& metadata, const std::string& directory, Pin&& listing,
                       const DirectoryData& data, SingleFlight::Ticket&& flight)
    : metadata_(metadata),
      flight_(std::move(flight)),
      directory_(directory),
      watch_(metadata.region()),
      listing_(std::move(listing)),
      data_(data),
      began_ns_(base::boot_ns()),
      entries_(data.count()) {
  watch_.watch(listing_->stat);
}

// Asks the kernel only once.
bool StatGather::are_links_followed(int directory) {
  Followed known = followed_.load(std::memory_order_relaxed);
  if (known == Followed::unknown) {
    constexpr long k_no_follow = 0x2000;  // ST_NOSYMFOLLOW
    struct ::statfs fs {};
    const bool are =
        !base::sys::failed(base::sys::raw(SYS_fstatfs, directory, base::sys::arg(&fs))) &&
        (fs.f_flags & k_no_follow) == 0;
    known = are ? Followed::yes : Followed::no;
    followed_.store(known, std::memory_order_relaxed);
  }
  return known == Followed::yes;
}

base::UniqueFd StatGather::open() const {
  const long fd = base::sys::open(directory_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  base::UniqueFd own(base::sys::failed(fd) ? -1 : static_cast<int>(fd));
  const auto stat =
      own ? stat_path(own.get(), "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC) : base::fail(EBADF);
  return stat && stat->same_file(listing_->stat) ? std::move(own) : base::UniqueFd();
}

// Stores the target of a link, and returns the value of StatTable::Entry::target. 0: the target is
// not stored.
std::uint32_t StatGather::keep_target(int directory, const char* name, const FileStat& link) {
  char target[PATH_MAX];
  const long n = base::sys::raw(SYS_readlinkat, directory, base::sys::arg(name),
                                base::sys::arg(target), sizeof target);
  // If the length differs, the link was replaced since the stat, or its file system makes up
  // targets on request (proc).
  if (n <= 0 || static_cast<std::uint64_t>(n) != link.size || n == sizeof target) return 0;
  if (!are_links_followed(directory)) return 0;
  try {
    const std::scoped_lock lock(mutex_);
    const std::size_t begin = targets_.size();
    if (begin + static_cast<std::size_t>(n) >= UINT32_MAX) return 0;
    targets_.append(target, static_cast<std::size_t>(n)).push_back('\0');
    return static_cast<std::uint32_t>(begin) + 1;
  } catch (const std::bad_alloc&) {
    return 0;
  }
}

StatTable::Entry StatGather::look(int directory, std::string_view name) {
  Region& region = metadata_.region();
  const auto& changes = region.header().file_changes;
  const std::uint64_t before = changes.load(std::memory_order_seq_cst);
  StatTable::Entry entry{};
  char key[PATH_MAX];
  const std::string_view below = directory_.size() == 1 ? std::string_view() : directory_;
  const std::size_t length = below.size() + 1 + name.size();
  if (length > sizeof key) return {};
  std::memcpy(key, below.data(), below.size());
  key[below.size()] = '/';
  std::memcpy(key + below.size() + 1, name.data(), name.size());
  entry.looked_ns = base::boot_ns();
  const bool asks =
      metadata_.stat_is_proof({key, length}) && may_keep_attributes(directory, name.data());
  const int flags = asks ? k_ask_server : 0;
  const auto stat =
      stat_path(directory, name.data(), AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | flags);
  region.stats().count(base::Counter::metadata_gathered);
  if (!stat) return {};
  entry.stat = *stat;
  if ((stat->mode & S_IFMT) == S_IFLNK) entry.target = keep_target(directory, name.data(), *stat);
  entry.changes = writer_stripe_of(region, *stat).epoch.load(std::memory_order_seq_cst);
  // The epoch may already count a change that happened after the stat. Such a stat is not stored.
  const bool is_sure =
      !may_be_written(region, *stat) && changes.load(std::memory_order_seq_cst) == before;
  return is_sure ? entry : StatTable::Entry{};
}

bool StatGather::step(int directory) {
  const std::uint32_t place = next_.fetch_add(1, std::memory_order_relaxed);
  if (place >= data_.count()) return false;
  const auto entry = data_.at(place);
  if (entry && directory >= 0 && !entry->is_dots()) {
    // look() needs a terminating zero. The name in the listing has one, as in the kernel's entries.
    const StatTable::Entry found = look(directory, entry->name);
    // If the types differ, the listing or the stat belongs to an earlier file of this name.
    const bool agree = entry->type == DT_UNKNOWN || entry->type == IFTODT(found.stat.mode);
    if (agree) entries_[place] = found;
  }
  // acq_rel: the thread that calls show() sees the stats that the other threads have written.
  if (done_.fetch_add(1, std::memory_order_acq_rel) + 1 == data_.count()) show();
  return true;
}

void StatGather::show() {
  RecordContent content;
  content.kind = RecordKind::stat;
  content.path = listing_->path();
  content.stat = listing_->stat;
  content.physical = listing_->is_physical();
  content.fetched_ns = base::wall_ns();
  content.verified_ns = began_ns_;
  metadata_.publish(
      content, StatTable::bytes_for(data_.count(), targets_.size()), watch_, [&](std::byte* to) {
        StatTable::write(to, StatTable::hash_of_listing(*listing_), entries_, targets_);
      });
}

}  // namespace cube::cache
