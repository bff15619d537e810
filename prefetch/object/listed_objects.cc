#include "prefetch/object/listed_objects.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <tuple>

#include "cache/base/clock.h"
#include "cache/base/hash.h"
#include "cache/region/life/room_for_others.h"

namespace cube::prefetch {
namespace {

// No program can change a directory of a bucket through the shim, so there is nothing to watch.
struct NoWatch {
  bool is_unchanged() const { return true; }
};

bool is_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.size() <= NAME_MAX &&
         name.find('/') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

bool is_listing_of(const cache::Record& record,
                   std::span<const cache::ObjectNames::Entry> entries) {
  const auto names = cache::ObjectNames::of(record);
  if (!names || names->count() != entries.size()) return false;
  std::uint64_t place = 0;
  return std::ranges::all_of(entries,
                             [&](const auto& entry) { return names->at(place++) == entry; });
}

// Reserves room for a listing, and evicts files if necessary: without the listing, no file below
// the directory could be opened.
base::Result<cache::RamTier::Reservation> reserve(cache::RamTier& ram, std::size_t path_length,
                                                  std::uint64_t bytes) {
  auto room = ram.reserve(path_length, bytes);
  // A long listing needs adjacent segments, so more bytes can be evicted than the listing needs.
  for (std::uint64_t wanted = bytes + path_length; !room; wanted *= 2) {
    const std::uint64_t given = cache::give_back(ram.region(), wanted);
    room = ram.reserve(path_length, bytes);
    if (given < wanted) break;
  }
  return room;
}

std::string path_of(const cache::BucketMount& mount, std::string_view below) {
  std::string path = mount.prefix();
  if (!below.empty()) path.append("/").append(below);
  return path;
}

}  // namespace

bool ListedObjects::is_there(const cache::RamTier& ram, const cache::BucketMount& mount,
                             std::string_view below, std::uint64_t since_ns) {
  const std::string path = path_of(mount, below);
  const cache::Pin pin = ram.find_of_origin(mount.origin_id(), cache::RecordKind::directory, path,
                                            base::hash_path(path));
  return pin && cache::ObjectNames::of(*pin) &&
         pin->verified_ns.load(std::memory_order_relaxed) >= since_ns;
}

void ListedObjects::add(std::string_view name, bool is_directory, const cache::ObjectInfo& object) {
  if (!is_name(name)) {
    // An empty name is the marker of the directory itself, which is not counted.
    left_out_ += name.empty() && !is_directory ? 0 : 1;
    return;
  }
  rows_.push_back({names_.size(), static_cast<std::uint32_t>(name.size()), is_directory, object});
  names_ += name;
}

// Sorts by name, puts a directory before an object of the same name, and removes duplicate names.
void ListedObjects::sort() {
  std::ranges::sort(rows_, [&](const Row& a, const Row& b) {
    const int order = name_of(a).compare(name_of(b));
    return order != 0 ? order < 0 : a.is_directory && !b.is_directory;
  });
  const auto is_hidden = [&](const Row& row, const Row& before) {
    return name_of(row) == name_of(before);
  };
  std::size_t kept = 0;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    if (kept != 0 && is_hidden(rows_[i], rows_[kept - 1])) {
      hidden_ += rows_[i].is_directory ? 0 : 1;
      continue;
    }
    rows_[kept++] = rows_[i];
  }
  rows_.resize(kept);
}

base::Result<void> ListedObjects::publish(cache::MountMetadata& metadata, cache::RamTier& ram,
                                          const cache::BucketMount& mount, std::string_view below,
                                          std::uint64_t looked_ns) {
  sort();
  std::vector<cache::ObjectNames::Entry> entries;
  entries.reserve(rows_.size());
  std::uint64_t name_bytes = 0;
  for (const Row& row : rows_) {
    entries.push_back({name_of(row), row.is_directory, row.object});
    name_bytes += row.name_length;
  }
  const std::uint64_t bytes = cache::ObjectNames::bytes_for(entries.size(), name_bytes);
  const auto write = [&](std::byte* to) { cache::ObjectNames::write(to, entries, name_bytes); };
  const std::string path = path_of(mount, below);
  const cache::Pin previous = ram.find_of_origin(mount.origin_id(), cache::RecordKind::directory,
                                                 path, base::hash_path(path));
  if (previous && is_listing_of(*previous, entries)) {
    ram.mark_verified(*previous, looked_ns);
    return {};
  }
  cache::RecordContent content;
  content.kind = cache::RecordKind::directory;
  content.path = path;
  content.stat = mount.stat_of_directory(below);
  content.physical = true;
  content.origin = mount.origin_id();
  content.fetched_ns = base::wall_ns();
  content.verified_ns = looked_ns;
  if (metadata.publish(content, bytes, NoWatch{}, write)) return {};
  // The room for metadata is used up, so the listing uses room for files.
  content.data_size = bytes;
  auto room = reserve(ram, path.size(), bytes);
  if (!room) return base::fail(ENOSPC);
  write(room->data());
  const auto pin = ram.publish(*room, content);
  if (!pin || !ram.confirm(std::move(*room), *pin)) return base::fail(ENOSPC);
  if (previous) ram.mark_record_stale(*previous);
  return {};
}

}  // namespace cube::prefetch
