#include "shim/cli/pack/pack_check.h"

#include <dirent.h>
#include <fmt/core.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "cache/base/error_text.h"
#include "cache/pack/make/tree_names.h"
#include "cache/pack/pack_io.h"
#include "shim/cli/interrupt.h"
#include "shim/cli/pack/pack_text.h"

namespace cube::cli {

using cache::RecordKind;
namespace sys = base::sys;

namespace {

class Check {
 public:
  Check(const cache::PackReader& pack, base::UniqueFd root, bool has_root, PackFindings& found)
      : pack_(pack), root_(std::move(root)), has_root_(has_root), found_(found) {}

  void record(const cache::PackEntry& entry, const std::string& path) {
    ++found_.entries;
    if (entry.kind == RecordKind::file) ++found_.files;
    found_.bytes += entry.data_size;
    if (!is_in_index(entry, path)) found_.add(shown(path) + ": the index does not name it");
    const int error = check_data(pack_, entry);
    if (error != 0) {
      found_.add(fmt::format("{}: {}", shown(path), pack_error(error)));
      return;
    }
    std::string listing;
    if (entry.kind == RecordKind::directory) listing = check_listing(entry, path);
    if (has_root_) compare(entry, path, listing);
  }

  std::uint64_t listed() const { return listed_; }

 private:
  bool is_in_index(const cache::PackEntry& entry, const std::string& path) const {
    const std::uint64_t hash = base::hash_path(path);
    for (std::uint64_t n = 0;; ++n) {
      const auto slot = pack_.locate(hash, n);
      if (!slot) return false;
      if (slot->offset == entry.offset && slot->bytes == entry.bytes) return true;
    }
  }

  std::string check_listing(const cache::PackEntry& entry, const std::string& path) {
    int error = 0;
    std::string listing = read_text(pack_, entry, error);
    cache::PackListingReader names(listing);
    std::string_view name;
    cache::PackName row{};
    while (names.next(name, row)) {
      ++listed_;
      const std::string below = path.empty() ? std::string(name) : fmt::format("{}/{}", path, name);
      if (!pack_.locate(base::hash_path(below)))
        found_.add(shown(below) + ": its directory names it, but it is missing");
    }
    if (error != 0 || !names.is_sound()) found_.add(shown(path) + ": its list of names is damaged");
    return listing;
  }

  // Opens the directory without following links, as the pack command does.
  base::Result<base::UniqueFd> directory_of(const std::string& path) const {
    base::UniqueFd at(
        static_cast<int>(sys::openat(root_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)));
    std::size_t begin = 0;
    for (std::size_t slash = path.find('/'); slash != std::string::npos;
         slash = path.find('/', begin)) {
      const std::string part = path.substr(begin, slash - begin);
      const long fd =
          sys::openat(at.get(), part.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
      if (sys::failed(fd)) return base::fail(static_cast<int>(-fd));
      at.reset(static_cast<int>(fd));
      begin = slash + 1;
    }
    return at;
  }

  void compare(const cache::PackEntry& entry, const std::string& path, const std::string& listing) {
    const std::string name = path.empty() ? "." : path.substr(path.rfind('/') + 1);
    const auto differs = [&](std::string_view what) {
      found_.add(fmt::format("{}: {}", shown(path), what));
    };
    const auto directory = directory_of(path);
    const auto stat = directory
                          ? cache::stat_path(directory->get(), name.c_str(),
                                             AT_SYMLINK_NOFOLLOW | cache::k_ask_server)
                          : base::Result<cache::FileStat>(base::fail(directory.error().value));
    if (!stat)
      return differs(fmt::format("the directory does not have it: {}",
                                 base::text_of_error(stat.error().value)));
    if ((stat->mode & S_IFMT) != (entry.stat.mode & S_IFMT))
      return differs("is of another type in the directory");
    if (stat->mode != entry.stat.mode) differs("has another mode in the directory");
    if (entry.kind == RecordKind::directory)
      return compare_names(directory->get(), name, path, listing);
    if (entry.kind == RecordKind::link) {
      char target[PATH_MAX];
      const long n = sys::readlinkat(directory->get(), name.c_str(), target, sizeof target);
      int error = 0;
      const bool is_same =
          !sys::failed(n) &&
          std::string_view(target, static_cast<std::size_t>(n)) == read_text(pack_, entry, error);
      return is_same ? void() : differs("leads to somewhere else in the directory");
    }
    if (stat->size != entry.stat.size)
      return differs(
          fmt::format("has {} bytes in the directory, and {} here", stat->size, entry.stat.size));
    if (stat->modified != entry.stat.modified)
      differs("was changed at another time in the directory");
    compare_data(directory->get(), name, entry, differs);
  }

  template <typename Differs>
  void compare_data(int directory, const std::string& name, const cache::PackEntry& entry,
                    const Differs& differs) const {
    const long fd =
        sys::openat(directory, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (sys::failed(fd))
      return differs(fmt::format("cannot be read in the directory: {}",
                                 base::text_of_error(static_cast<int>(-fd))));
    const base::UniqueFd file(static_cast<int>(fd));
    constexpr std::size_t k_part = 1 << 20;
    const auto part = std::make_unique_for_overwrite<std::byte[]>(k_part);
    base::Hasher hasher;
    for (std::uint64_t at = 0;;) {
      const auto got = cache::read_at(file.get(), part.get(), k_part, at);
      if (!got)
        return differs(fmt::format("cannot be read in the directory: {}",
                                   base::text_of_error(got.error().value)));
      hasher.add(part.get(), *got);
      at += *got;
      if (*got < k_part) break;
    }
    if (hasher.value() != entry.data_hash) differs("has other bytes in the directory");
  }

  void compare_names(int parent, const std::string& name, const std::string& path,
                     const std::string& listing) {
    const long fd =
        sys::openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    const base::UniqueFd directory(sys::failed(fd) ? -1 : static_cast<int>(fd));
    const auto there = directory
                           ? cache::TreeNames::list(directory.get())
                           : base::Result<cache::TreeNames>(base::fail(static_cast<int>(-fd)));
    if (!there)
      return found_.add(fmt::format("{}: cannot be listed: {}", shown(path),
                                    base::text_of_error(there.error().value)));
    cache::PackListingReader names(listing);
    std::string_view packed;
    cache::PackName row{};
    bool has_packed = names.next(packed, row);
    // This loop merges the two listings, which are both sorted by bytes.
    for (std::size_t i = 0; i < there->size(); ++i) {
      while (has_packed && packed < there->text(i)) has_packed = names.next(packed, row);
      if (has_packed && packed == there->text(i)) continue;
      found_.add(fmt::format(
          "{}: not in the pack",
          printable(path.empty() ? there->text(i) : fmt::format("{}/{}", path, there->text(i)))));
    }
  }

  const cache::PackReader& pack_;
  base::UniqueFd root_;
  bool has_root_;
  PackFindings& found_;
  std::uint64_t listed_ = 0;
};

}  // namespace

PackFindings check_pack(const cache::PackReader& pack, base::UniqueFd against, Progress& progress) {
  PackFindings found;
  const bool is_compared = static_cast<bool>(against);
  if (!pack.index_is_sound()) found.add("the index is damaged");
  Check check(pack, std::move(against), is_compared, found);
  cache::PackScan scan = pack.scan();
  const cache::PackHeader& header = pack.header();
  cache::PackEntry entry;
  std::string_view path;
  auto next = scan.next(entry, path);
  for (; next == cache::PackScan::Next::record; next = scan.next(entry, path)) {
    if (interrupted_by() != 0) {
      found.was_interrupted = true;
      return found;
    }
    check.record(entry, std::string(path));
    progress.show({.files = found.files,
                   .bytes = found.bytes,
                   .total_files = header.files,
                   .is_total_final = true});
  }
  if (next == cache::PackScan::Next::damaged)
    found.add(fmt::format(
        "no valid record after byte {}{}", scan.position(),
        scan.error() != 0 ? fmt::format(": {}", base::text_of_error(scan.error())) : ""));
  if (found.problems == 0 && (found.entries != header.entries || found.files != header.files))
    found.add(fmt::format("it has {} entries and should have {}", found.entries, header.entries));
  if (found.problems == 0 && check.listed() + 1 != header.entries)
    found.add("its directories do not name what is in it");
  return found;
}

}  // namespace cube::cli
