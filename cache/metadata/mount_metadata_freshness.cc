// MountMetadata: decides whether a listing or a stat is still right, and revalidates it.
#include <algorithm>
#include <cerrno>

#include "cache/base/clock.h"
#include "cache/base/hash.h"
#include "cache/base/path.h"
#include "cache/metadata/mount_metadata.h"
#include "cache/origin/links_on_way.h"
#include "cache/region/writers.h"

namespace cube::cache {
namespace {

bool is_later(const FileTime& a, const FileTime& b) {
  return a.seconds != b.seconds ? a.seconds > b.seconds : a.nanoseconds > b.nanoseconds;
}

std::uint64_t age_ns(const FileStat& stat) {
  const FileTime& last = is_later(stat.changed, stat.modified) ? stat.changed : stat.modified;
  const auto now = static_cast<std::int64_t>(base::wall_ns() / base::k_ns_per_s);
  const std::int64_t age = now - std::clamp<std::int64_t>(last.seconds, 0, now);
  return static_cast<std::uint64_t>(age) * base::k_ns_per_s;
}

bool is_within(std::uint64_t since_ns, std::uint64_t for_ns) {
  const std::uint64_t now = base::boot_ns();
  return now >= since_ns && now - since_ns < for_ns;
}

}  // namespace

void MountMetadata::doubt() {
  if (are_any())
    region_->job_row(region_->own_job())
        .metadata_doubted_ns.store(base::boot_ns(), std::memory_order_relaxed);
}

bool MountMetadata::is_young(const Record& record, bool again) const {
  const std::uint64_t verified = record.verified_ns.load(std::memory_order_relaxed);
  if (verified < doubted_ns()) return false;
  if (ttl_.kind == base::MetadataTtl::Kind::job) return verified >= job_start_ns_;
  // A TTL of more than a second applies only to the first time that a program asks. A program that
  // asks again may be waiting for another program to create the file.
  const bool may_be_longer = ttl_.kind == base::MetadataTtl::Kind::seconds && !again;
  return is_within(
      verified,
      std::min(may_be_longer ? ttl_.seconds * base::k_ns_per_s : base::k_ns_per_s, most_ttl_ns_));
}

// The stat of a directory at the origin. If `is_physical`, checks that the path still contains no
// link. When a parent directory is moved, a link to its new path may take its place, which the
// directory's stat does not show. If the kernel cannot detect links, no record is physical.
base::Result<FileStat> MountMetadata::stat_of_directory(const char* path, bool is_physical) {
  if (!is_physical) return stat_path(AT_FDCWD, path, k_ask_server);
  LinksOnWay links = LinksOnWay::unknown;
  const long fd = open_noting_links(path, O_PATH | O_CLOEXEC, links);
  if (fd == -EMFILE || fd == -ENFILE) return stat_path(AT_FDCWD, path, k_ask_server);
  const base::UniqueFd own(base::sys::failed(fd) ? -1 : static_cast<int>(fd));
  return own && links == LinksOnWay::none ? stat_path(own.get(), "", AT_EMPTY_PATH | k_ask_server)
                                          : base::fail(ENOENT);
}

bool MountMetadata::is_still_right(const Record& record) {
  // Without reliable times, no stat can prove the listing. The directory must be read again.
  if (const auto data = DirectoryData::of(record); !data || !data->has_true_times()) return false;
  region_->stats().count(base::Counter::metadata_revalidations);
  const std::uint64_t now = base::boot_ns();
  const auto found = stat_of_directory(record.path_text(), record.is_physical());
  if (found && found->is_unchanged_since(record.stat)) {
    ram_->mark_verified(record, now);
    return true;
  }
  ram_->mark_record_stale(record);
  return false;
}

Pin MountMetadata::fresh_listing(std::string_view key, bool again) {
  Pin found = directory(key);
  if (found && !holds(*found, again)) found.release();
  return found;
}

bool MountMetadata::is_current(const StatTable::Entry& entry) const {
  using Kind = base::MetadataTtl::Kind;
  const bool is_young =
      ttl_.kind == Kind::job
          ? entry.looked_ns >= job_start_ns_
          : is_within(entry.looked_ns,
                      std::min(ttl_.kind == Kind::seconds
                                   ? ttl_.seconds * base::k_ns_per_s
                                   : std::clamp(age_ns(entry.stat) / 10, base::k_ns_per_s,
                                                60 * base::k_ns_per_s),
                               most_ttl_ns_));
  return is_young && is_untouched(entry) &&
         entry.looked_ns >= region_->header().doubted_ns.load(std::memory_order_relaxed);
}

bool MountMetadata::is_untouched(const StatTable::Entry& entry) const {
  // A process that changes the file increments the epoch (seq_cst) before its call returns.
  return writer_stripe_of(*region_, entry.stat).epoch.load(std::memory_order_seq_cst) ==
             entry.changes &&
         !may_be_written(*region_, entry.stat);
}

bool MountMetadata::stat_is_proof(std::string_view key) const {
  return most_ttl_ns_ != UINT64_MAX || !remote_->is_empty() ||
         ram_->has_any(key, base::hash_path(key)) || tiers_->may_have(key);
}

std::uint64_t MountMetadata::looked_ns(const EntryStat& known) {
  return std::min(known.entry->looked_ns, known.table->verified_ns.load(std::memory_order_relaxed));
}

// Whether the path still names this file. A stat of the last second proves it; otherwise the
// listing of the directory must be valid.
bool MountMetadata::is_shown(const EntryStat& stat, const Entry& entry) {
  const std::uint64_t looked = looked_ns(stat);
  return (is_within(looked, base::k_ns_per_s) && looked >= doubted_ns()) ||
         holds(*entry.directory, /*again=*/false);
}

bool MountMetadata::was_listed(std::string_view key, const FileStat& file) const {
  const auto [parent, name] = base::split_path(key);
  const Pin found = directory(parent);
  const auto data = found ? DirectoryData::of(*found) : std::nullopt;
  const auto entry = data ? data->find(name) : std::nullopt;
  // A new file often gets the inode number of the file that had the name before. But a file that
  // was born after the directory's ctime was created after the listing. A birth time of 0 means
  // that it is not known.
  return entry && entry->inode == file.inode && !is_later(file.born, found->stat.changed);
}

}  // namespace cube::cache
