#include "cache/pack/pack_mount.h"

#include <fmt/core.h>

#include <cerrno>
#include <cstring>

#include "cache/base/log.h"

namespace cube::cache {
namespace {

// The hash includes the prefix, because under another prefix the same path names another record.
std::uint32_t device_of(std::string_view prefix, const PackReader& reader) {
  const std::uint64_t words[] = {base::hash_path(prefix), reader.identity()};
  return k_pack_device |
         static_cast<std::uint32_t>(base::hash_bytes(words, sizeof words) & (k_pack_device - 1));
}

// Returns the error for the program. If the pack is damaged, warns the user once.
int as_seen_error(int error) {
  if (error != EBADMSG) return error;
  static constinit std::atomic<bool> told{false};
  if (!told.exchange(true, std::memory_order_relaxed))
    base::log(base::LogLevel::warn,
              "a pack of CUBESHIM_PACKS is damaged: cubeshim verify says where");
  return EIO;
}

// Builds a path of the pack, component by component.
class PackedPath {
 public:
  explicit PackedPath(PackMount::FoundName& out) : out_(out) { out_.length = 0; }
  // False: the path leaves the pack, or is too long.
  bool add(std::string_view part) {
    if (part.empty() || part == ".") return true;
    if (part == "..") {
      if (out_.length == 0) return false;
      leave();
      return true;
    }
    if (out_.length + part.size() + 1 >= PATH_MAX) return false;
    if (out_.length != 0) out_.path.data()[out_.length++] = '/';
    std::memcpy(out_.path.data() + out_.length, part.data(), part.size());
    out_.length += static_cast<std::uint32_t>(part.size());
    return true;
  }
  // Removes the last component.
  void leave() {
    const std::size_t slash = out_.name().rfind('/');
    out_.length = slash == std::string_view::npos ? 0 : static_cast<std::uint32_t>(slash);
  }

 private:
  PackMount::FoundName& out_;
};

}  // namespace

std::unique_ptr<PackMount> PackMount::open(const base::OriginSetting& setting, std::string& why) {
  auto reader = PackReader::open(setting.file, why);
  if (reader == nullptr) return nullptr;
  reader->keep_out_of_the_way();
  auto mount = std::make_unique<PackMount>();
  mount->prefix_ = setting.prefix;
  mount->device_minor_ = device_of(mount->prefix_, *reader);
  mount->windows_ = PackWindows::make(reader->header().records_begin, reader->header().records_end);
  mount->reader_ = std::move(reader);
  return mount;
}

base::Result<void> PackMount::as_seen(const base::Result<void>& result) const {
  if (!reader_->is_untouched()) {
    static constinit std::atomic<bool> told{false};
    if (!told.exchange(true, std::memory_order_relaxed))
      base::log(base::LogLevel::warn,
                "{} was changed while in use: what is not cached cannot be read; replace "
                "packs by rename",
                reader_->file());
    return base::fail(EIO);
  }
  if (!result) return base::fail(as_seen_error(result.error().value));
  return {};
}

FileStat PackMount::as_seen(FileStat stat) const {
  constexpr std::uint32_t k_kernel_majors = (1U << 12) - 1;
  stat.device_major = (stat.device_major * 257 + stat.device_minor) & k_kernel_majors;
  stat.device_minor = device_minor_;
  return stat;
}

// Looks up found.path, in which no link is followed.
base::Result<void> PackMount::look_up(FoundName& found, bool wants_entry) const {
  if (!wants_entry) {
    const auto slot = reader_->locate(base::hash_path(found.name()));
    if (!slot) return base::fail(slot.error().value);
    found.slot = *slot;
    return {};
  }
  const auto entry = reader_->find(found.name());
  if (!entry) return base::fail(entry.error().value);
  found.entry = *entry;
  found.entry.stat = as_seen(entry->stat);
  return {};
}

// Rebuilds found.path with its links resolved.
base::Result<void> PackMount::follow_links(bool follows_last, FoundName& found) const {
  constexpr int k_most_links = 40;
  base::OffStack room_of_rest, room_of_target;
  if (!room_of_rest || !room_of_target) return base::fail(ENOMEM);
  char* const rest = room_of_rest.data();
  std::size_t left = found.length;
  std::memcpy(rest, found.path.data(), left);
  PackedPath path(found);
  found.physical = true;
  int links = 0;
  while (left != 0) {
    const std::string_view all(rest, left);
    const std::size_t end = std::min(all.find('/'), left);
    if (end > NAME_MAX) return base::fail(ENAMETOOLONG);
    if (!path.add(all.substr(0, end))) return base::fail(ENOENT);
    const bool is_last = end == left;
    left -= is_last ? end : end + 1;
    std::memmove(rest, rest + (is_last ? end : end + 1), left);
    if (is_last && !follows_last) break;
    const auto there = look_up(found, true);
    if (!there) return there;
    if (found.entry.kind == RecordKind::file && !is_last) return base::fail(ENOTDIR);
    if (found.entry.kind != RecordKind::link) continue;
    found.physical = false;
    const std::size_t size = found.entry.data_size;
    if (++links > k_most_links) return base::fail(ELOOP);
    if (size == 0 || size >= PATH_MAX) return base::fail(EBADMSG);
    const auto read = reader_->read(found.entry, room_of_target.bytes());
    if (!read) return read;
    std::string_view text(room_of_target.data(), size);
    path.leave();
    if (text.front() == '/') {
      if (!covers(text)) return base::fail(ENOENT);
      text.remove_prefix(prefix_.size());
      found.length = 0;
    }
    if (text.size() + 1 + left > base::OffStack::k_bytes) return base::fail(ENAMETOOLONG);
    std::memmove(rest + text.size() + 1, rest, left);
    std::memcpy(rest, text.data(), text.size());
    rest[text.size()] = '/';
    left = left == 0 ? text.size() : left + text.size() + 1;
  }
  return {};
}

// The error for a path that the pack lacks, if no link is involved. The deepest existing parent
// determines the error. If this parent is not a directory, the error is ENOTDIR. Otherwise it is
// ENAMETOOLONG if the missing name is too long, and ENOENT if not.
int PackMount::negative_entry_of(std::string_view name) const {
  std::string_view above = name;
  while (!above.empty()) {
    const std::size_t slash = above.rfind('/');
    const std::string_view missing = name.substr(slash == std::string_view::npos ? 0 : slash + 1);
    above = slash == std::string_view::npos ? std::string_view() : above.substr(0, slash);
    const std::uint64_t hash = base::hash_path(above);
    if (!above.empty() && last_directory_.load(std::memory_order_relaxed) != hash) {
      const auto entry = reader_->find(above);
      if (!entry && entry.error().value == ENOENT) continue;
      if (!entry) return entry.error().value;
      if (entry->kind != RecordKind::directory) return ENOTDIR;
      last_directory_.store(hash, std::memory_order_relaxed);
    }
    return std::min(missing.find('/'), missing.size()) > NAME_MAX ? ENAMETOOLONG : ENOENT;
  }
  return ENOENT;
}

// Sets found.path to the part of `path` below the prefix.
base::Result<void> PackMount::begin(std::string_view path, FoundName& found) const {
  path = below_prefix(path);
  if (!found.path) return base::fail(ENOMEM);
  if (path.size() >= PATH_MAX) return base::fail(ENAMETOOLONG);
  std::memcpy(found.path.data(), path.data(), path.size());
  found.length = static_cast<std::uint32_t>(path.size());
  found.physical = true;
  return {};
}

base::Result<void> PackMount::find(std::string_view path, bool follows, FoundName& found) const {
  const auto fits = begin(path, found);
  if (!fits) return fits;
  auto result = look_up(found, true);
  const bool is_absent = !result && result.error().value == ENOENT;
  const bool is_link = result && found.entry.kind == RecordKind::link && follows;
  if (reader_->header().links != 0 && (is_absent || is_link)) {
    result = follow_links(follows, found);
    if (result) result = look_up(found, true);
  } else if (is_absent) {
    result = base::fail(negative_entry_of(found.name()));
  }
  return as_seen(result);
}

base::Result<void> PackMount::resolve(std::string_view path, FoundName& found) const {
  auto result = begin(path, found);
  if (result) result = follow_links(/*follows_last=*/false, found);
  return as_seen(result);
}

std::unique_ptr<PackMounts> PackMounts::open(const std::vector<base::OriginSetting>& settings,
                                             std::vector<std::string>& errors) {
  auto packs = std::make_unique<PackMounts>();
  for (const auto& setting : settings) {
    std::string why;
    auto mount = PackMount::open(setting, why);
    if (mount != nullptr) {
      packs->add(std::move(mount));
    } else {
      errors.push_back(
          fmt::format("CUBESHIM_PACKS: {}; it takes PREFIX=FILE of packs made by cubeshim pack, "
                      "':' between them",
                      why));
    }
  }
  return packs;
}

std::unique_ptr<PackMounts> PackMounts::opened_anew() const {
  auto own = std::make_unique<PackMounts>();
  for (const auto& mount : mounts_) {
    std::string why;
    auto again = PackMount::open({.prefix = mount->prefix(), .file = mount->reader().file()}, why);
    if (again != nullptr && again->reader().identity() == mount->reader().identity())
      own->add(std::move(again));
  }
  return own;
}

}  // namespace cube::cache
