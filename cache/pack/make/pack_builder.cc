#include "cache/pack/make/pack_builder.h"

#include <dirent.h>
#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include "cache/base/error_text.h"
#include "cache/pack/pack_io.h"

namespace cube::cache {

namespace sys = base::sys;
using What = FetchedEntry::What;

namespace {

constexpr std::size_t k_entries_a_thread = 8;

std::string join(std::string_view directory, std::string_view name) {
  return directory.empty() ? std::string(name) : fmt::format("{}/{}", directory, name);
}

base::Result<base::UniqueFd> open_directory(int parent, const char* name, int flags) {
  const long fd =
      sys::openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK | flags);
  if (sys::failed(fd)) return base::fail(static_cast<int>(-fd));
  return base::UniqueFd(static_cast<int>(fd));
}

// Whether the directory is the root or lies below it. Compares inodes, because paths may contain
// links.
bool lies_within(const std::string& directory, const FileStat& root) {
  auto fd = open_directory(AT_FDCWD, directory.c_str(), 0);
  while (fd) {
    const auto here = stat_fd(fd->get());
    if (!here) return false;
    if (here->same_file(root)) return true;
    auto up = open_directory(fd->get(), "..", 0);
    const auto above = up ? stat_fd(up->get()) : here;
    if (!above || above->same_file(*here)) return false;
    fd = std::move(up);
  }
  return false;
}

}  // namespace

std::string_view name_of(PackSkip reason) {
  switch (reason) {
    case PackSkip::missing: return "missing";
    case PackSkip::not_a_file: return "not regular files";
    case PackSkip::too_long: return "longer than NAME_MAX or PATH_MAX allows";
    case PackSkip::too_deep: return "in too many directories";
    case PackSkip::unreadable: return "unreadable";
    case PackSkip::changing: return "changed while they were read";
    case PackSkip::below_no_directory: return "below a link or a file";
    case PackSkip::no_path: return "objects whose keys are not paths";
  }
  return "";
}

bool PackBuilder::fail(std::string why) {
  why_ = std::move(why);
  return false;
}

bool PackBuilder::check(const base::Result<void>& written) {
  if (written) return true;
  return fail(fmt::format("cannot write {}: {}", writer_->partial(),
                          base::text_of_error(written.error().value)));
}

bool PackBuilder::prepare() {
  const auto root = stat_path(AT_FDCWD, build_.root.c_str(), 0);
  if (!root)
    return fail(
        fmt::format("cannot read {}: {}", build_.root, base::text_of_error(root.error().value)));
  if ((root->mode & S_IFMT) != S_IFDIR) return fail(build_.root + " is not a directory");
  if (lies_within(directory_of(build_.file), *root))
    return fail(fmt::format("{} lies in {}: a pack cannot lie in the directory that is packed",
                            build_.file, build_.root));
  auto writer = PackWriter::open(
      {.file = build_.file,
       .arguments_hash = base::hash_path(build_.root + (build_.list != nullptr ? "\n--list" : "")),
       .scratch = build_.scratch});
  if (!writer && writer.error().value == EWOULDBLOCK)
    return fail(fmt::format("another cubeshim pack is writing {}.partial", build_.file));
  if (!writer)
    return fail(fmt::format("cannot write {}.partial: {}", build_.file,
                            base::text_of_error(writer.error().value)));
  writer_ = std::move(*writer);
  crew_ = std::make_unique<Crew>(std::max(1U, build_.threads));
  return enter_root();
}

PackBuilder::End PackBuilder::run(std::string& why) {
  bool is_well = prepare();
  while (is_well && !levels_.empty()) {
    if (!build_.go_on(writer_->header())) {
      if (check(writer_->pause())) return End::stopped;
      is_well = false;
      break;
    }
    Level& level = levels_.back();
    if (level.at == level.names.size()) {
      is_well = leave();
    } else if (level.names[level.at].type == DT_DIR) {
      is_well = enter(level.at++);
    } else {
      is_well = take_batch();
    }
  }
  if (is_well && check(writer_->finish())) return End::done;
  why = why_;
  return End::failed;
}

FileStat PackBuilder::packed(const FileStat& stat) {
  const auto found = std::find(devices_.begin(), devices_.end(), stat.device());
  const auto number = static_cast<std::uint32_t>(found - devices_.begin());
  if (found == devices_.end()) devices_.push_back(stat.device());
  return packed_stat(stat, number);
}

bool PackBuilder::enter_root() {
  Level level;
  auto fd = open_directory(AT_FDCWD, build_.root.c_str(), 0);
  if (!fd)
    return fail(
        fmt::format("cannot read {}: {}", build_.root, base::text_of_error(fd.error().value)));
  level.fd = std::move(*fd);
  if (build_.list != nullptr) {
    level.range = {0, build_.list->size()};
    level.is_whole = level.range.to != 0 && (*build_.list)[0].empty();
  }
  if (!add_level(std::move(level)))
    return fail(fmt::format("cannot read {}: {}", build_.root, why_));
  return true;
}

bool PackBuilder::enter(std::size_t i) {
  const Level& above = levels_.back();
  Level level;
  level.path = join(above.path, above.names.text(i));
  if (!is_pack_path(level.path)) return skip(PackSkip::too_long, level.path), true;
  if (levels_.size() == k_most_levels) return skip(PackSkip::too_deep, level.path), true;
  auto fd = open_directory(above.fd.get(), above.names.c_str(i), O_NOFOLLOW);
  if (!fd && fd.error().value == ENOENT) return skip(PackSkip::missing, level.path), true;
  if (!fd) return skip(PackSkip::unreadable, level.path, fd.error().value), true;
  level.fd = std::move(*fd);
  level.is_whole = above.is_whole;
  if (!above.is_whole) {
    level.range = build_.list->below(level.path, above.range);
    level.is_whole = (*build_.list)[level.range.from] == level.path;
  }
  add_level(std::move(level));
  return true;
}

// False: the directory cannot be read; `why_` is the text of the error.
bool PackBuilder::add_level(Level level) {
  const auto stat = stat_fd(level.fd.get(), k_ask_server);
  auto names = level.is_whole ? TreeNames::list(level.fd.get()) : TreeNames();
  if (!stat || !names) {
    const int error = stat ? names.error().value : stat.error().value;
    skip(PackSkip::unreadable, level.path, error);
    return fail(base::text_of_error(error));
  }
  level.stat = packed(*stat);
  level.names = std::move(*names);
  if (!level.is_whole) list_names(level);
  find_types(level);
  levels_.push_back(std::move(level));
  return true;
}

// Adds the names in this directory that the list contains.
void PackBuilder::list_names(Level& level) const {
  const std::size_t skipped = level.path.empty() ? 0 : level.path.size() + 1;
  std::string_view last;
  for (std::size_t i = level.range.from; i < level.range.to; ++i) {
    std::string_view name = (*build_.list)[i].substr(skipped);
    name = name.substr(0, name.find('/'));
    if (name != last) level.names.add(name, 0, DT_UNKNOWN);
    last = name;
  }
}

void PackBuilder::find_types(Level& level) {
  std::vector<std::size_t> unknown;
  for (std::size_t i = 0; i < level.names.size(); ++i) {
    if (level.names[i].type == DT_UNKNOWN) unknown.push_back(i);
  }
  if (unknown.empty()) return;
  crew_->run(unknown.size(), [&](std::size_t k) {
    const auto stat = stat_path(level.fd.get(), level.names.c_str(unknown[k]), AT_SYMLINK_NOFOLLOW);
    if (!stat) return;
    TreeName& name = level.names[unknown[k]];
    name.type = static_cast<std::uint8_t>(IFTODT(stat->mode));
    name.inode = stat->inode;
  });
}

bool PackBuilder::leave() {
  Level level = std::move(levels_.back());
  levels_.pop_back();
  if (!write_done(level)) return false;
  bool is_complete = level.is_whole;
  for (std::size_t i = 0; i < level.names.size(); ++i)
    is_complete = is_complete && level.names[i].is_packed;
  const auto now = stat_fd(level.fd.get(), k_ask_server);
  const bool is_unchanged =
      now && now->modified == level.stat.modified && now->changed == level.stat.changed;
  if (!is_unchanged) skip(PackSkip::changing, level.path);
  DirectoryRecord record{std::move(level.path), level.stat,
                         level.names.listing(is_complete && is_unchanged)};
  if (levels_.empty()) return write(record);
  Level& above = levels_.back();
  above.names[above.at - 1].is_packed = true;
  done_bytes_ += record.bytes();
  above.done.push_back(std::move(record));
  return done_bytes_ <= build_.most_waiting || write_done(above);
}

bool PackBuilder::write_done(Level& level) {
  for (const DirectoryRecord& directory : level.done) {
    if (!write(directory)) return false;
    done_bytes_ -= directory.bytes();
  }
  level.done.clear();
  return true;
}

bool PackBuilder::write(const DirectoryRecord& directory) {
  const auto& [path, stat, listing] = directory;
  const OldRecord* const old = writer_->old();
  const bool is_same = old != nullptr && old->path == path &&
                       old->entry.kind == RecordKind::directory &&
                       old->entry.data_size == listing.size() &&
                       old->entry.data_hash == base::hash_bytes(listing.data(), listing.size()) &&
                       std::memcmp(&old->entry.stat, &stat, sizeof stat) == 0;
  if (is_same) {
    const auto adopted = writer_->adopt();
    if (!adopted) return check(base::fail(adopted.error().value));
    resumed_ += *adopted ? 1 : 0;
    if (*adopted) return true;
  }
  return check(writer_->add({.path = path, .kind = RecordKind::directory, .stat = stat},
                            {reinterpret_cast<const std::byte*>(listing.data()), listing.size()}));
}

bool PackBuilder::take_batch() {
  const std::size_t most = std::max(1U, build_.threads) * k_entries_a_thread;
  Level& level = levels_.back();
  std::vector<std::string> paths;
  std::vector<const FileStat*> old;
  std::size_t ahead = 0;
  for (std::size_t i = level.at;
       i < level.names.size() && paths.size() < most && level.names[i].type != DT_DIR; ++i) {
    paths.push_back(join(level.path, level.names.text(i)));
    const OldRecord* const there = writer_->old(ahead);
    const bool is_old = there != nullptr && there->path == paths.back();
    old.push_back(nullptr);
    if (!is_old) continue;
    old.back() = &there->entry.stat;
    ++ahead;
  }
  std::vector<FetchedEntry> fetched(paths.size());
  crew_->run(paths.size(), [&](std::size_t k) {
    const std::size_t i = level.at + k;
    if (is_pack_path(paths[k]))
      fetched[k] = fetch_entry(level.fd.get(), level.names.c_str(i), level.names[i].type, old[k]);
  });
  bool has_to_stop = false;
  for (std::size_t k = 0; k < paths.size() && !has_to_stop; ++k) {
    if (!take(level.at, paths[k], std::move(fetched[k]), has_to_stop)) return false;
    if (!has_to_stop) ++level.at;
  }
  return true;
}

bool PackBuilder::take(std::size_t i, const std::string& path, FetchedEntry entry,
                       bool& has_to_stop) {
  Level& level = levels_.back();
  // Some mounts have names that are longer than 255 bytes.
  if (!is_pack_path(path)) return skip(PackSkip::too_long, path), true;
  if (entry.what == What::same) {
    const OldRecord* const old = writer_->old();
    const std::uint32_t device = packed(entry.stat).device_minor;
    const bool is_next =
        old != nullptr && old->path == path && old->entry.stat.device_minor == device;
    const auto adopted = is_next ? writer_->adopt() : base::Result<bool>(false);
    if (!adopted) return check(base::fail(adopted.error().value));
    if (*adopted) {
      level.names[i].is_packed = true;
      level.names[i].type = static_cast<std::uint8_t>(IFTODT(entry.stat.mode));
      ++resumed_;
      if (!level.is_whole) refuse_below(level, path);
      return true;
    }
    entry = fetch_entry(level.fd.get(), level.names.c_str(i), DT_UNKNOWN, nullptr);
  }
  if (!level.is_whole && entry.what != What::directory) refuse_below(level, path);
  switch (entry.what) {
    case What::same: break;
    case What::file: return add(i, path, RecordKind::file, entry);
    case What::link: return add(i, path, RecordKind::link, entry);
    case What::large_file: return take_large(i, path);
    case What::directory:
      level.names[i].type = DT_DIR;
      has_to_stop = true;
      break;
    case What::missing: skip(PackSkip::missing, path); break;
    case What::special: skip(PackSkip::not_a_file, path); break;
    case What::unreadable: skip(PackSkip::unreadable, path, entry.error); break;
    case What::changing: skip(PackSkip::changing, path); break;
  }
  return true;
}

void PackBuilder::refuse_below(const Level& level, const std::string& path) {
  const auto range = build_.list->below(path, level.range);
  for (std::size_t k = range.from; k < range.to; ++k) {
    if ((*build_.list)[k] != path) skip(PackSkip::below_no_directory, (*build_.list)[k]);
  }
}

bool PackBuilder::add(std::size_t i, std::string_view path, RecordKind kind,
                      const FetchedEntry& entry) {
  TreeName& name = levels_.back().names[i];
  name.is_packed = true;
  name.type = kind == RecordKind::link ? DT_LNK : DT_REG;
  return check(writer_->add({.path = path, .kind = kind, .stat = packed(entry.stat)},
                            {entry.data.get(), entry.size}));
}

bool PackBuilder::take_large(std::size_t i, const std::string& path) {
  Level& level = levels_.back();
  constexpr int k_tries_of_large = 3;
  for (int tried = 0; tried < k_tries_of_large; ++tried) {
    const auto fd = open_entry(level.fd.get(), level.names.c_str(i));
    const auto stat = fd ? stat_fd(fd->get(), k_ask_server)
                         : base::Result<FileStat>(base::fail(fd.error().value));
    if (!stat) return skip(PackSkip::unreadable, path, stat.error().value), true;
    if (!stat->is_regular()) break;
    std::uint64_t at = 0;
    const auto added = writer_->add_streamed(
        {.path = path, .stat = packed(*stat)}, stat->size, [&](std::byte* to, std::size_t n) {
          auto got = read_at(fd->get(), to, n, at);
          if (got) at += *got;
          if (!got || *got == n) return got;
          const auto now = stat_fd(fd->get(), k_ask_server);
          return now && now->is_unchanged_since(*stat)
                     ? got
                     : base::Result<std::size_t>(base::fail(ESTALE));
        });
    if (added) {
      level.names[i].is_packed = true;
      level.names[i].type = DT_REG;
      return true;
    }
    if (!writer_->has_failed_in_source()) return check(added);
    if (added.error().value != ESTALE)
      return skip(PackSkip::unreadable, path, added.error().value), true;
  }
  skip(PackSkip::changing, path);
  return true;
}

}  // namespace cube::cache
