#include "cache/metadata/mount_metadata.h"

#include <dirent.h>

#include <algorithm>
#include <cerrno>

#include "cache/base/clock.h"
#include "cache/base/hash.h"
#include "cache/base/path.h"
#include "cache/region/fetch_scope.h"
#include "cache/region/writers.h"

namespace cube::cache {
namespace {

using base::Counter;

// After this many misses in one directory, the stats of its other entries are probably wanted, too.
constexpr std::uint64_t k_many_misses = 4;
// With fewer misses in the process, threads would cost more than they save.
constexpr std::uint32_t k_worth_threads = 48;
// With fewer directories read by the process, listing ahead would cost more than it saves.
constexpr std::uint32_t k_worth_listing_ahead = 8;
// In bytes of entries. Longer directories are left to the program, which may want only the first
// entries.
constexpr std::uint64_t k_worth_waiting_for = 512 << 10;
// A region with at least this many segments can spare one for metadata if opens wait for stats.
constexpr std::uint32_t k_spares_one = 8;
// A metadata record that has not been used for this long may be evicted.
constexpr std::uint64_t k_unused_ns = 600'000'000'000;
// The pause between two searches for a segment whose records may be evicted.
constexpr std::uint64_t k_until_looked_again_ns = 5'000'000'000;

// The key of the flight for reading a directory. No file's key ends in a slash, so this key differs
// from those of files.
std::uint64_t hash_of_reading(std::string_view key) {
  return base::hash_path(key) ^ base::hash_path("/");
}

std::uint64_t bytes_of(const base::RamSize& size, const RegionLayout& layout) {
  const std::uint64_t all = std::uint64_t{layout.segment_bytes} * layout.segment_count;
  return std::min(size.is_percent ? all / 100 * size.value : size.value, all / 2);
}

}  // namespace

MountMetadata::MountMetadata(Region& region, RamTier& ram, const Tiers& tiers, const Tiers& remote,
                             const base::Config& config)
    : region_(&region),
      ram_(&ram),
      tiers_(&tiers),
      remote_(&remote),
      flights_(region),
      is_on_(config.metadata && config.mode == base::Mode::virtual_files &&
             config.consistency.kind != base::ConsistencyKind::open),
      ttl_(config.metadata_ttl),
      most_ttl_ns_(config.consistency.kind == base::ConsistencyKind::ttl
                       ? config.consistency.ttl_seconds * base::k_ns_per_s
                       : UINT64_MAX),
      job_start_ns_(region.job_row(region.own_job()).started_ns),
      most_bytes_(bytes_of(config.metadata_ram, region.layout())) {}

std::uint32_t MountMetadata::most_segments() const {
  const std::uint64_t others = region_->header().metadata_bytes.load(std::memory_order_relaxed);
  const auto most = static_cast<std::uint32_t>((most_bytes_ - std::min(others, most_bytes_)) /
                                               region_->layout().segment_bytes);
  return most == 0 && opens_wait_.load(std::memory_order_relaxed) ? 1 : most;
}

bool MountMetadata::has_room_for(std::uint64_t bytes) const {
  const RegionHeader& header = region_->header();
  if (most_segments() != 0 && bytes < region_->layout().segment_bytes) {
    return header.metadata_full_until.load(std::memory_order_relaxed) <= base::boot_ns();
  }
  return header.metadata_bytes.load(std::memory_order_relaxed) + bytes <= most_bytes_;
}

base::Result<RamTier::Reservation> MountMetadata::reserve(std::size_t path_length,
                                                          std::uint64_t bytes,
                                                          std::uint64_t& beside_files) {
  RegionHeader& header = region_->header();
  const std::uint64_t now = base::boot_ns();
  const std::uint32_t segments = most_segments();
  if (segments != 0 && header.metadata_full_until.load(std::memory_order_relaxed) <= now) {
    std::uint64_t used_since = now - std::min(now, k_unused_ns);
    if (ttl_.kind == base::MetadataTtl::Kind::seconds)
      used_since = now - std::min(now, std::max(k_unused_ns, ttl_.seconds * base::k_ns_per_s));
    // If the TTL is the whole job, uses of records are not noted. So all records of this job count
    // as used.
    if (ttl_.kind == base::MetadataTtl::Kind::job) used_since = std::min(used_since, job_start_ns_);
    auto reserved = ram_->reserve_for_metadata(path_length, bytes,
                                               {.segments = segments, .used_since_ns = used_since});
    if (!reserved && reserved.error().value == ENOSPC)
      header.metadata_full_until.store(now + k_until_looked_again_ns, std::memory_order_relaxed);
    if (reserved || (reserved.error().value != EFBIG && reserved.error().value != ENOMEM))
      return reserved;
  } else if (segments != 0 && bytes < region_->layout().segment_bytes) {
    return base::fail(ENOSPC);
  }
  beside_files = plan_record(0, path_length, bytes, RecordShape::compact).end;
  if (header.metadata_bytes.load(std::memory_order_relaxed) + beside_files > most_bytes_)
    return base::fail(ENOSPC);
  return ram_->reserve(path_length, bytes, RecordShape::compact);
}

Pin MountMetadata::directory(std::string_view key) const {
  return ram_->find_of_kind(RecordKind::directory, key, base::hash_path(key));
}

Pin MountMetadata::stats_of(std::string_view key) const {
  return ram_->find_of_kind(RecordKind::stat, key, base::hash_path(key));
}

MountMetadata::Says MountMetadata::directory_itself(std::string_view key, bool no_follow,
                                                    bool with_mount, FileStat& stat) {
  const Pin own = fresh_listing(key, /*again=*/false);
  if (!own || (no_follow && !own->is_physical()) || (with_mount && !own->has_one_view()))
    return Says::unknown;
  stat = own->stat;
  region_->stats().count(Counter::metadata_stats);
  return Says::present;
}

MountMetadata::EntryStat MountMetadata::gathered_stat(std::string_view key,
                                                      const Entry& entry) const {
  EntryStat known{.table = stats_of(base::split_path(key).directory)};
  if (known.table)
    known.entry = StatTable::find(*known.table, StatTable::hash_of_listing(*entry.directory),
                                  entry.entry.place);
  return known;
}

MountMetadata::EntryStat MountMetadata::stat_of(std::string_view key, const Entry& entry) const {
  EntryStat known = gathered_stat(key, entry);
  if (known.entry != nullptr && !is_current(*known.entry)) known.entry = nullptr;
  return known;
}

MountMetadata::Says MountMetadata::stat(std::string_view key, bool no_follow, bool with_mount,
                                        FileStat& stat) {
  if (!is_on_ || key.size() < 2) return Says::unknown;
  Entry entry = entry_of(key);
  if (entry.says == Says::absent) return Says::absent;
  if (entry.says == Says::unknown || entry.entry.type == DT_DIR) {
    if (directory_itself(key, no_follow, with_mount, stat) == Says::present) return Says::present;
    if (entry.says == Says::unknown) return Says::unknown;
  }
  const EntryStat known = stat_of(key, entry);
  if (known.entry == nullptr || (with_mount && !known.table->has_one_view())) return Says::unknown;
  const bool is_link = (known.entry->stat.mode & S_IFMT) == S_IFLNK;
  if ((is_link && !no_follow) || !is_shown(known, entry)) return Says::unknown;
  stat = known.entry->stat;
  region_->stats().count(Counter::metadata_stats);
  return Says::present;
}

MountMetadata::Entry MountMetadata::listed_entry(std::string_view key) const {
  const auto [parent, name] = base::split_path(key);
  Entry listed;
  listed.directory = directory(parent);
  const auto data = listed.directory ? DirectoryData::of(*listed.directory) : std::nullopt;
  const auto found = data ? data->find(name) : std::nullopt;
  if (!found) return listed;
  listed.says = Says::present;
  listed.entry = *found;
  return listed;
}

std::optional<KnownStats::Known> MountMetadata::known_stat(std::string_view key,
                                                           std::uint64_t since_ns) const {
  if (!is_on_ || !are_any() || key.size() < 2) return {};
  const Entry listed = listed_entry(key);
  if (listed.says != Says::present) return {};
  const EntryStat known = gathered_stat(key, listed);
  const StatTable::Entry* const entry = known.entry;
  if (entry == nullptr || entry->looked_ns == 0 || !entry->stat.is_regular()) return {};
  const std::uint64_t looked = looked_ns(known);
  if (looked < since_ns || !is_untouched(*entry)) return {};
  region_->stats().count(Counter::metadata_stats);
  return Known{entry->stat, looked};
}

void MountMetadata::correct_stat(std::string_view key, const FileStat& stat) {
  const Entry listed = listed_entry(key);
  if (listed.says != Says::present) return;
  const EntryStat known = gathered_stat(key, listed);
  // If the types differ, the key is a link, and the origin's stat is that of its target.
  if (known.entry == nullptr || (known.entry->stat.mode & S_IFMT) != (stat.mode & S_IFMT)) return;
  if (known.entry->stat.is_unchanged_since(stat) || !is_untouched(*known.entry)) return;
  // Invalidates the gathered stat, which is valid only for the stripe's current epoch.
  writer_stripe_of(*region_, known.entry->stat).epoch.fetch_add(1, std::memory_order_seq_cst);
}

bool MountMetadata::correct_target(std::string_view key, std::string_view target) {
  const Entry listed = listed_entry(key);
  if (listed.says != Says::present) return false;
  const EntryStat known = gathered_stat(key, listed);
  const std::string_view text = known.entry != nullptr
                                    ? StatTable::target_of(*known.table, *known.entry)
                                    : std::string_view();
  if (text.empty() || text == target || !is_untouched(*known.entry)) return false;
  writer_stripe_of(*region_, known.entry->stat).epoch.fetch_add(1, std::memory_order_seq_cst);
  return true;
}

bool MountMetadata::note_miss(std::string_view key) {
  if (!is_on_ || key.size() < 2) return false;
  const std::uint64_t hash = base::hash_path(base::split_path(key).directory);
  auto& row = missed_[hash % k_missed];
  const std::uint64_t before = row.load(std::memory_order_relaxed);
  const std::uint64_t count = before >> 16 == hash >> 16 ? (before & 0xffff) + 1 : 1;
  const bool are_many =
      misses_.fetch_add(1, std::memory_order_relaxed) >= k_worth_threads && count >= k_many_misses;
  // Restarts the count after it has returned true. If the gathered stats expire, later misses then
  // return true again.
  row.store((hash & ~0xffffULL) | (are_many ? 0 : count), std::memory_order_relaxed);
  return are_many;
}

bool MountMetadata::note_look(std::string_view key) {
  const bool is_small = most_segments() == 0;
  if (is_small && (most_bytes_ == 0 || region_->layout().segment_count < k_spares_one))
    return false;
  if (!note_miss(key)) return false;
  if (is_small) opens_wait_.store(true, std::memory_order_relaxed);
  return true;
}

bool MountMetadata::is_first_in_directory(std::string_view key) {
  const std::uint64_t hash = base::hash_path(base::split_path(key).directory);
  if (last_entered_.load(std::memory_order_relaxed) == hash) return false;
  last_entered_.store(hash, std::memory_order_relaxed);
  return entered_[hash % k_asked].exchange(hash, std::memory_order_relaxed) != hash;
}

MountMetadata::Listed MountMetadata::list(std::string_view key, const char* path) {
  Listed listed;
  if (!is_on_) return listed;
  const bool again = asks_again(key, k_kind_listing);
  Pin found = fresh_listing(key, again);
  if (found) {
    region_->stats().count(Counter::metadata_listed);
  } else {
    // A signal handler that interrupts a fetch must not begin another fetch.
    if (FetchScope::is_open()) return listed;
    FetchScope scope;
    SingleFlight::Ticket ticket;
    listed.was_worth_listing_ahead =
        lists_read_.fetch_add(1, std::memory_order_relaxed) >= k_worth_listing_ahead;
    found = begin_reading(key, again, ticket);
    scope.hold(ticket.hold());
    Read from;
    if (!found) {
      found = read(key, path, k_worth_waiting_for, from);
      listed.is_from_origin = found || from.fd;
    }
    listed.fd = std::move(from.fd);
    listed.is_long = from.is_long;
  }
  const auto data = found ? DirectoryData::of(*found) : std::nullopt;
  if (!data) return listed;
  auto copy = Listing::make(key, {}, found->stat, data->entries().size());
  if (copy) {
    (*copy)->add_all(data->entries());
    listed.listing = *copy;
    listed.fd.reset();
  }
  return listed;
}

void MountMetadata::list_ahead(std::string_view key, const char* path) {
  SingleFlight::Ticket flight;
  if (fresh_listing(key, /*again=*/false)) return;
  if (flights_.begin_prefetch(hash_of_reading(key), flight) != SingleFlight::Prefetch::mine) return;
  if (fresh_listing(key, /*again=*/false)) return;
  Read from;
  read(key, path, most_bytes_, from);
}

Pin MountMetadata::begin_reading(std::string_view key, bool again, SingleFlight::Ticket& flight) {
  flights_.begin(hash_of_reading(key), flight);
  return fresh_listing(key, again);
}

Pin MountMetadata::listing_of(std::string_view key, const char* path) {
  SingleFlight::Ticket flight;
  Pin found = fresh_listing(key, /*again=*/false);
  if (!found) found = begin_reading(key, /*again=*/false, flight);
  Read from;
  return found ? std::move(found) : read(key, path, most_bytes_, from);
}

bool MountMetadata::begin_gather(std::string_view key, SingleFlight::Ticket& flight) {
  // No file's key ends in a slash, so this key differs from those of files.
  return flights_.begin_prefetch(base::hash_path(key) ^ base::hash_path("//"), flight) ==
         SingleFlight::Prefetch::mine;
}

bool MountMetadata::is_file(std::string_view key) {
  if (!is_on_ || key.size() < 2) return false;
  const Entry entry = entry_of(key);
  return entry.says == Says::present && entry.entry.type == DT_REG &&
         holds(*entry.directory, /*again=*/false);
}

}  // namespace cube::cache
