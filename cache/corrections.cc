#include "cache/corrections.h"

#include <dirent.h>

#include <climits>
#include <cstring>

#include "cache/base/hash.h"
#include "cache/base/memory/off_stack.h"
#include "cache/base/path.h"

namespace cube::cache {
namespace {

// Limits the loops. Several records can describe one path, because the file had other sizes, or
// because other views have found it by other paths.
constexpr int k_most_records = 16;
// MountMetadata climbs as many levels when it searches for a directory that lacks a name.
constexpr int k_most_levels = 9;

bool is_root(std::string_view key) { return key.size() < 2; }

// 0: the listing does not tell the kind.
std::uint8_t kind_of_type(std::uint8_t type) {
  return type == DT_UNKNOWN ? 0
         : type == DT_DIR   ? Told::k_directory
         : type == DT_LNK   ? Told::k_link
                            : Told::k_other;
}

std::uint8_t kind_of_mode(std::uint32_t mode) {
  return kind_of_type(static_cast<std::uint8_t>((mode & S_IFMT) >> 12));
}

bool lists_nothing(const DirectoryData& data) {
  DirectoryData::Entry entry;
  for (DirectoryData::Reader reader(data.entries()); reader.next(entry);) {
    if (!entry.is_dots()) return false;
  }
  return true;
}

// The stat of the path, from the kernel.
base::Result<FileStat> stat_of(std::string_view key, int flags) {
  base::OffStack room;
  if (!room || key.size() >= PATH_MAX) return base::fail(ENOMEM);
  std::memcpy(room.data(), key.data(), key.size());
  room.data()[key.size()] = '\0';
  return stat_path(AT_FDCWD, room.data(), flags | AT_STATX_DONT_SYNC);
}

// Whether the answer contradicts a listing that contains the name with this kind.
bool contradicts(std::string_view key, std::uint8_t kind, const Told& told) {
  // A link can be broken, or can lead to a file of any kind.
  if (kind == Told::k_link && !told.no_follow) return false;
  if (kind != 0) return (told.kinds & kind) == 0;
  return told.kinds == 0 && !stat_of(key, AT_SYMLINK_NOFOLLOW);
}

}  // namespace

Pin Corrections::listing_of(std::string_view directory) const {
  return parts_.ram.find_of_kind(RecordKind::directory, directory, base::hash_path(directory));
}

Corrections::Listed Corrections::listed_name(std::string_view key) const {
  const auto [above, name] = base::split_path(key);
  Pin listing = listing_of(above);
  const auto data = listing ? DirectoryData::of(*listing) : std::nullopt;
  const auto entry = data ? data->find(name) : std::nullopt;
  return entry ? Listed{std::move(listing), entry->type} : Listed{};
}

// Also prevents a directory read in progress from publishing its listing.
void Corrections::drop(const Record& listing) {
  const FileStat stat = listing.stat;
  parts_.ram.mark_record_stale(listing);
  changes_.entries_changed(stat);
}

void Corrections::drop_name(const Record& file, bool is_same_file) {
  if (!is_same_file) return changes_.name_lost(file);
  changes_.content_changed(file.path(), &file.stat);
}

Pin Corrections::prover_of_negative_entries(std::string_view key, bool& is_certain) const {
  for (int level = 0; level < k_most_levels && !is_root(key); ++level) {
    const auto [above, name] = base::split_path(key);
    Pin listing = listing_of(above);
    if (!listing) {
      key = above;
      continue;
    }
    const auto data = DirectoryData::of(*listing);
    if (!data || data->find(name)) return {};
    is_certain = data->proves_negative_entries() && may_be_negative(name);
    return listing;
  }
  return {};
}

bool Corrections::drop_negative_entries(std::string_view key) {
  bool has_corrected = false;
  for (int i = 0; i < k_most_records; ++i) {
    bool is_certain = false;
    const Pin teller = prover_of_negative_entries(key, is_certain);
    if (!teller) break;
    if (!is_certain) {
      // A file system can find names that it does not list (.snapshot), so only a revalidation of
      // the listing shows whether this name is new.
      parts_.ram.mark_verified(*teller, 0);
      break;
    }
    drop(*teller);
    has_corrected = true;
  }
  return has_corrected;
}

void Corrections::doubt_negative_entries(std::string_view key) {
  bool is_certain = false;
  if (const Pin teller = prover_of_negative_entries(key, is_certain); teller)
    parts_.ram.mark_verified(*teller, 0);
}

// Drops what memory holds about the path, if the answer contradicts it.
bool Corrections::correct_presence(std::string_view key, const Told& told) {
  bool has_corrected = false;
  const auto is_refuted = [&] {
    return !told.is_in_doubt || has_corrected || !stat_of(key, AT_SYMLINK_NOFOLLOW);
  };
  // If the call does not follow a final link, its answer proves nothing about a record whose path
  // leads through links.
  const auto is_of_name = [&](const Pin& record) {
    return record && (told.kinds == 0 || !told.no_follow || record->is_physical());
  };
  for (int i = 0; i < k_most_records && (told.kinds & Told::k_other) == 0; ++i) {
    const Pin file = parts_.ram.find(key, base::hash_path(key));
    if (!is_of_name(file) || !is_refuted()) break;
    drop_name(*file, /*is_same_file=*/false);
    has_corrected = true;
  }
  for (int i = 0; i < k_most_records && (told.kinds & Told::k_directory) == 0; ++i) {
    const Pin own = listing_of(key);
    if (!is_of_name(own) || !is_refuted()) break;
    drop(*own);
    changes_.tree_changed(key);
    has_corrected = true;
  }
  for (int i = 0; i < k_most_records; ++i) {
    const Listed listed = listed_name(key);
    if (!listed.listing || !contradicts(key, kind_of_type(listed.type), told) || !is_refuted())
      break;
    drop(*listed.listing);
    // If the entry is not a regular file, drops the records of the paths that lead through it.
    if (listed.type != DT_REG) changes_.tree_changed(key);
    has_corrected = true;
  }
  return has_corrected;
}

std::string_view Corrections::follow(std::string_view key, char* room) {
  if (const Listed listed = listed_name(key); !listed.listing || listed.type != DT_LNK) return {};
  MountMetadata::FoundPath real{.text = room};
  metadata_.real_path(key, MountMetadata::Leads::by_link, real);
  return real.view() == key ? std::string_view() : real.view();
}

void Corrections::learn(std::string_view key, const Told& told) {
  if (is_root(key)) return;
  if (told.is_there && told.kinds != 0) drop_negative_entries(key);
  bool has_corrected = correct_presence(key, told);
  // The kernel would have answered ENOTDIR if a parent were a file.
  if (told.is_there) has_corrected |= correct_way(base::split_path(key).directory);
  if (told.has_entries) {
    const Pin own = listing_of(key);
    const auto data = own ? DirectoryData::of(*own) : std::nullopt;
    if (data && lists_nothing(*data)) drop(*own);
  }
  if (!told.no_follow) {
    base::OffStack room;
    const std::string_view real = room ? follow(key, room.data()) : std::string_view();
    Told of_target = told;
    of_target.no_follow = true;
    if (!is_root(real)) {
      if (told.is_there && told.kinds != 0) drop_negative_entries(real);
      has_corrected |= correct_presence(real, of_target);
    }
  }
  const bool may_be_way = told.kinds == 0 || !told.is_there;
  if (may_be_way && has_corrected) find_broken_way(key);
}

// Corrects memory about all parents of the path, which are directories, or links to directories.
bool Corrections::correct_way(std::string_view way) {
  bool has_corrected = false;
  for (int level = 0; level < k_most_levels && !is_root(way); ++level) {
    // A listing of the path can be older than the record that describes the path as a file.
    if (correct_presence(way, {.kinds = Told::k_directory})) {
      has_corrected = true;
    } else if (listing_of(way)) {
      break;
    }
    way = base::split_path(way).directory;
  }
  return has_corrected;
}

void Corrections::learn_stat(std::string_view key, const FileStat& stat, bool no_follow) {
  if (is_root(key)) return;
  learn(key, {.kinds = kind_of_mode(stat.mode), .no_follow = no_follow});
  if (const Pin file = parts_.ram.find(key, base::hash_path(key));
      file && (!no_follow || file->is_physical()) && !file->stat.is_unchanged_since(stat))
    drop_name(*file, file->stat.same_file(stat));
  if (const Pin own = listing_of(key); own && (!no_follow || own->is_physical())) {
    const auto data = DirectoryData::of(*own);
    if (data && data->has_true_times() && !own->stat.is_unchanged_since(stat)) drop(*own);
  }
  metadata_.correct_stat(key, stat);
  if (no_follow) return;
  // The link may have another target than the cached one.
  base::OffStack room;
  const std::string_view real = room ? follow(key, room.data()) : std::string_view();
  if (!is_root(real)) metadata_.correct_stat(real, stat);
}

void Corrections::learn_target(std::string_view key, std::string_view target) {
  if (is_root(key)) return;
  learn(key, {.kinds = Told::k_link, .no_follow = true});
  if (metadata_.correct_target(key, target)) {
    changes_.content_changed(key, nullptr);
    changes_.tree_changed(key);
  }
}

bool Corrections::believes_directory(std::string_view key) const {
  return listing_of(key) || (!is_root(key) && listed_name(key).listing);
}

bool Corrections::learn_way_is_broken(std::string_view key) {
  if (is_root(key)) return true;
  bool is_certain = false;
  const bool believes_any = static_cast<bool>(parts_.ram.find(key, base::hash_path(key))) ||
                            believes_directory(key) ||
                            believes_directory(base::split_path(key).directory) ||
                            static_cast<bool>(prover_of_negative_entries(key, is_certain));
  return !believes_any || find_broken_way(key);
}

bool Corrections::find_broken_way(std::string_view key) {
  std::string_view broken;
  for (std::string_view way = base::split_path(key).directory; !is_root(way);
       way = base::split_path(way).directory) {
    const auto stat = stat_of(way, 0);
    if (stat && (stat->mode & S_IFMT) == S_IFDIR) break;
    const int error = stat ? ENOTDIR : stat.error().value;
    if (error != ENOENT && error != ENOTDIR && error != ELOOP) break;
    broken = way;
  }
  if (broken.empty()) return false;
  const bool is_there = static_cast<bool>(stat_of(broken, AT_SYMLINK_NOFOLLOW));
  if (is_there) drop_negative_entries(broken);
  constexpr std::uint8_t k_no_directory = Told::k_link | Told::k_other;
  correct_presence(broken, {.kinds = is_there ? k_no_directory : std::uint8_t{0}});
  changes_.tree_changed(broken);
  return true;
}

std::size_t Corrections::path_of_listed(const FileStat& directory, char* path) const {
  const Pin listing = parts_.ram.find_directory(directory);
  if (!listing) return 0;
  const std::string_view text = listing->path();
  std::memcpy(path, text.data(), text.size());
  return text.size();
}

}  // namespace cube::cache
