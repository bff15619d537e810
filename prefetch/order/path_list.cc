#include "prefetch/order/path_list.h"

#include <algorithm>
#include <cerrno>
#include <climits>

#include "cache/base/error_text.h"
#include "cache/base/log.h"
#include "cache/base/path.h"
#include "prefetch/order/named_range.h"

namespace cube::prefetch {

namespace sys = base::sys;

std::unique_ptr<PathList> PathList::open(PathListOptions options, std::string& why) {
  std::string cwd;
  if (!options.list.starts_with('/')) {
    char text[PATH_MAX];
    const long n = sys::getcwd(text, sizeof text);
    if (!sys::failed(n)) cwd = text;
  }
  std::string absolute;
  if (fold_path(cwd, options.list, absolute) != Folded::ok) {
    why = options.list + ": not a path";
    return nullptr;
  }
  auto reader = ListEntries::open(options.list.c_str(), why);
  if (!reader) {
    why = options.list + ": " + why;
    return nullptr;
  }
  std::unique_ptr<PathList> list(new PathList(std::move(options), std::move(*reader)));
  const std::string& directory = list->options_.directory;
  list->places_.push_back(directory.empty() ? absolute.substr(0, absolute.rfind('/')) : directory);
  for (const auto& prefix : list->options_.prefixes) {
    if (prefix != list->places_.front()) list->places_.push_back(prefix);
  }
  return list;
}

PathList::Next PathList::next(PathEntry& entry) {
  while (true) {
    Verdict verdict = Verdict::none;
    const bool is_walk = walk_.is_walking();
    if (is_walk) {
      verdict = take_walked();
    } else if (!directories_.empty()) {
      const std::string directory = std::move(directories_.front());
      directories_.pop_front();
      walk_began_ = given_;
      const int error = walk_.begin(directory);
      if (error != 0)
        refuse_line(error == ENOENT ? Refusal::missing : Refusal::unreadable, directory, error);
    } else {
      std::string_view line;
      switch (reader_.next(line)) {
        case ListEntries::Got::entry: verdict = take_line(line); break;
        case ListEntries::Got::too_long: refuse_line(Refusal::too_long, line); break;
        case ListEntries::Got::end: return Next::end;
        case ListEntries::Got::error: return Next::error;
      }
    }
    if (verdict == Verdict::none) continue;
    entry.path = path_.c_str();
    entry.sequence = given_++;
    entry.walk = is_walk ? walk_began_ : PathEntry::k_no_walk;
    entry.kind = verdict == Verdict::file ? PathEntry::file : PathEntry::unknown;
    return Next::entry;
  }
}

PathList::Verdict PathList::take_walked() {
  const DirWalk::FoundEntry found = walk_.next();
  switch (found.kind) {
    case DirWalk::FoundEntry::end: return Verdict::none;
    case DirWalk::FoundEntry::refused: return refuse_line(found.reason, walk_.path(), found.error);
    default: break;
  }
  if (exclusions_.cover(walk_.path())) {
    walk_.leave_out();
    return refuse_line(Refusal::excluded, walk_.path());
  }
  if (found.kind == DirWalk::FoundEntry::directory) return Verdict::none;
  path_ = walk_.path();
  if (found.kind == DirWalk::FoundEntry::file) return Verdict::file;
  if (!options_.look_at_each) return Verdict::unknown;
  // A link to a file counts as a file.
  const auto stat = look();
  if (stat && stat->is_regular()) return Verdict::file;
  return refuse_line(stat ? Refusal::not_a_file : Refusal::missing, path_,
                     stat ? 0 : stat.error().value);
}

PathList::Verdict PathList::take_line(std::string_view line) {
  if (!reader_.is_nul_separated()) {
    if (line.empty() || line.front() == '#') return Verdict::none;
    if (line.front() == '-') return exclude(line.substr(1));
  }
  if (line.empty()) return refuse_line(Refusal::bad_line, line);
  return line.front() == '/' ? take_path(line) : take_relative(line);
}

// Returns the stat of path_ from its origin.
base::Result<cache::FileStat> PathList::look() const {
  if (const cache::Origin* const origin =
          options_.origins != nullptr ? &options_.origins->of(path_) : nullptr;
      origin != nullptr) {
    const auto stat = origin->stat(path_, path_.c_str());
    if (stat || origin->traits().knows_all_names) return stat;
  }
  return cache::stat_path(AT_FDCWD, path_.c_str(), 0);
}

bool PathList::is_covered(std::string_view path) const {
  return std::any_of(options_.prefixes.begin(), options_.prefixes.end(),
                     [&](const std::string& prefix) { return base::is_at_or_below(path, prefix); });
}

PathList::Verdict PathList::take_path(std::string_view text) {
  if (fold_path({}, text, path_) != Folded::ok) return refuse_line(Refusal::too_long, text);
  if (!is_covered(path_)) return refuse_line(Refusal::outside, path_);
  return judge(text.ends_with('/'));
}

PathList::Verdict PathList::take_relative(std::string_view text) {
  bool fits = false, covered = false;
  const auto try_place = [&](std::size_t i) {
    if (fold_path(places_[i], text, path_) != Folded::ok) return false;
    fits = true;
    if (!is_covered(path_)) return false;
    covered = true;
    return true;
  };
  if (place_ != SIZE_MAX && try_place(place_)) {
    if (!options_.look_at_each || look()) return judge(text.ends_with('/'));
  }
  for (std::size_t i = 0; i < places_.size(); ++i) {
    if (i == place_ || !try_place(i) || !look()) continue;
    place_ = i;
    return judge(text.ends_with('/'));
  }
  // The text might name a range of a large file. The origin has only the file's name without the
  // range.
  const NamedRange named = named_range(text);
  for (std::size_t i = 0;
       named.kind != NamedRange::Kind::none && !options_.look_at_each && i < places_.size(); ++i) {
    if (fold_path(places_[i], named.path, path_) != Folded::ok || !is_covered(path_) || !look())
      continue;
    path_ += text.substr(named.path.size());
    return judge(false);
  }
  return refuse_line(!fits      ? Refusal::too_long
                     : !covered ? Refusal::outside
                                : Refusal::missing,
                     text);
}

// Decides about path_, which is within a prefix.
PathList::Verdict PathList::judge(bool is_directory) {
  if (exclusions_.cover(path_)) return refuse_line(Refusal::excluded, path_);
  if (!is_directory && options_.look_at_each) {
    const auto stat = look();
    if (!stat) {
      const int error = stat.error().value;
      const bool missing = error == ENOENT || error == ENOTDIR;
      return refuse_line(missing                 ? Refusal::missing
                         : error == ENAMETOOLONG ? Refusal::too_long
                                                 : Refusal::unreadable,
                         path_, missing ? 0 : error);
    }
    if (stat->is_regular()) return Verdict::file;
    is_directory = (stat->mode & S_IFMT) == S_IFDIR;
    if (!is_directory) return refuse_line(Refusal::not_a_file, path_);
  }
  if (!is_directory) return Verdict::unknown;
  directories_.push_back(path_);
  return Verdict::none;
}

PathList::Verdict PathList::exclude(std::string_view text) {
  const auto begin = std::min(text.find_first_not_of(" \t"), text.size());
  const std::string_view name = text.substr(begin);
  if (name.empty()) return refuse_line(Refusal::bad_line, "-");
  const std::size_t places = name.front() == '/' ? 1 : places_.size();
  bool covered = false, is_full = false;
  for (std::size_t i = 0; i < places; ++i) {
    if (fold_path(places_[i], name, path_) != Folded::ok || !is_covered(path_)) continue;
    covered = true;
    is_full |= !exclusions_.add(path_);
  }
  if (!covered) refuse_line(Refusal::outside, name);
  if (is_full) refuse_line(Refusal::bad_line, name, ENOMEM);
  return Verdict::none;
}

void PathList::log() const {
  refusals_.log(options_.list);
  if (reader_.error() != 0) {
    base::log(base::LogLevel::warn, "prefetch list {}: line {}: cannot be read further: {}",
              options_.list, reader_.line(), base::text_of_error(reader_.error()));
  } else if (reader_.has_changed()) {
    base::log(base::LogLevel::warn, "prefetch list {}: was changed while it was being read",
              options_.list);
  }
}

}  // namespace cube::prefetch
