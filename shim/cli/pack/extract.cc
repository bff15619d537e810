// cubeshim extract: restores the files of a pack. Even for a malicious pack, nothing is written
// outside the directory: the reader refuses paths that are invalid in a pack, no directory is
// entered through a link, and links are made last.
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>

#include "cache/base/clock.h"
#include "cache/base/error_text.h"
#include "shim/cli/commands.h"
#include "shim/cli/complaint.h"
#include "shim/cli/interrupt.h"
#include "shim/cli/pack/pack_text.h"
#include "shim/cli/settings.h"
#include "shim/cli/warmup/progress.h"

namespace cube::cli {

using cache::PackEntry;
using cache::RecordKind;

namespace {

struct Extract {
  std::string file, directory;
  std::vector<std::string> paths;
  bool force = false;
  ProgressOptions progress;
};

class Extractor {
 public:
  // `is_new` is true if the root was made for this pack. A new root gets the rights and times in
  // the pack; an existing root keeps its own.
  Extractor(const cache::PackReader& pack, int root, bool is_new, bool force, Progress& progress)
      : pack_(pack), root_(root), is_new_(is_new), force_(force), progress_(progress) {}

  void take(const PackEntry& entry, const std::string& path) {
    if (entry.kind == RecordKind::directory) {
      const int error = enter(path);
      if (error != 0) return fail(path, error);
      directories_.emplace_back(path, entry.stat);
    } else if (entry.kind == RecordKind::link) {
      links_.emplace_back(path, entry);
    } else if (const int error = write_file(entry, path); error != 0) {
      fail(path, error);
    }
  }
  // Call this last. Makes the links, and sets the rights and times of directories.
  void finish() {
    for (const auto& [path, entry] : links_) {
      if (const int error = make_link(entry, path); error != 0) fail(path, error);
    }
    for (const auto& [path, stat] : directories_) {
      if (path.empty() && !is_new_) continue;
      const int error = enter(path);
      if (error != 0 || !dress(parent_.get(), stat)) fail(path, error != 0 ? error : errno);
    }
  }
  std::uint64_t files() const { return files_; }
  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t failures() const { return failures_; }
  // The number of existing files that --force would replace.
  std::uint64_t files_in_the_way() const { return force_ ? 0 : in_the_way_; }
  // The number of failures that were not reported on a separate line.
  std::uint64_t failures_untold() const { return failures_ - std::min(failures_, k_shown); }

 private:
  static constexpr std::uint64_t k_shown = 20;
  void fail(const std::string& path, int error) {
    if (error == EEXIST) ++in_the_way_;
    if (failures_++ >= k_shown) return;
    progress_.clear();  // otherwise the text would be on the line of the bar
    complain(1, fmt::format("{}: {}", shown(path), pack_error(error)));
  }

  static std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }
  static std::string directory_of(const std::string& path) {
    const std::size_t slash = path.rfind('/');
    return slash == std::string::npos ? "" : path.substr(0, slash);
  }

  // Opens this directory as parent_, component by component from the root. Returns 0 or an errno.
  int enter(const std::string& directory) {
    if (parent_ && directory == parent_path_) return 0;
    base::UniqueFd at(openat(root_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    for (std::size_t begin = 0; at && begin < directory.size();) {
      const std::size_t end = std::min(directory.find('/', begin), directory.size());
      const std::string part = directory.substr(begin, end - begin);
      if (mkdirat(at.get(), part.c_str(), 0777) != 0 && errno != EEXIST) return errno;
      at.reset(openat(at.get(), part.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
      begin = end + 1;
    }
    if (!at) return errno;
    parent_ = std::move(at);
    parent_path_ = directory;
    return 0;
  }

  // Sets the owner before the mode, because a change of the owner clears bits of the mode.
  static bool dress(int fd, const cache::FileStat& stat) {
    mode_t mode = stat.mode & 07777;
    if (fchown(fd, stat.user, stat.group) != 0) mode &= ~static_cast<mode_t>(S_ISUID | S_ISGID);
    const timespec times[2] = {
        {0, UTIME_OMIT}, {stat.modified.seconds, static_cast<long>(stat.modified.nanoseconds)}};
    return fchmod(fd, mode) == 0 && futimens(fd, times) == 0;
  }

  // Returns the name under which a new file is made: with --force a temporary name, because the
  // file may replace another file.
  std::string first_name(const std::string& name) const { return force_ ? temporary_ : name; }
  // Gives a new file its final name. Returns 0 or an errno. After an error, the new file is
  // removed.
  int give_name(const std::string& name, int error) const {
    const std::string first = first_name(name);
    if (error == 0 && force_ &&
        renameat(parent_.get(), first.c_str(), parent_.get(), name.c_str()) != 0)
      error = errno;
    // If both names are links to the same file, rename does nothing and leaves the temporary name.
    if (error != 0 || force_) unlinkat(parent_.get(), first.c_str(), 0);
    return error;
  }

  int write_file(const PackEntry& entry, const std::string& path) {
    if (const int error = enter(directory_of(path)); error != 0) return error;
    const std::string name = name_of(path), first_name = this->first_name(name);
    const std::pair inode(entry.stat.device(), entry.stat.inode);
    if (entry.stat.links > 1) {
      const auto first = inodes_.find(inode);
      const bool is_same = first != inodes_.end() && first->second.hash == entry.data_hash &&
                           first->second.size == entry.data_size;
      if (is_same) return hard_link(first->second.path, path);
    }
    base::UniqueFd file(openat(parent_.get(), first_name.c_str(),
                               O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file) return errno;
    int error = write_data(entry, file.get());
    if (error == 0 && !dress(file.get(), entry.stat)) error = errno;
    // Some mounts report a full disk only at close.
    if (close(file.release()) != 0 && error == 0) error = errno;
    error = give_name(name, error);
    if (error != 0) return error;
    if (entry.stat.links > 1)
      inodes_.try_emplace(inode, First{path, entry.data_hash, entry.data_size});
    ++files_;
    bytes_ += entry.data_size;
    return 0;
  }

  int hard_link(const std::string& from, const std::string& to) {
    if (const int error = enter(directory_of(from)); error != 0) return error;
    const base::UniqueFd source = std::move(parent_);
    if (const int error = enter(directory_of(to)); error != 0) return error;
    const std::string name = name_of(to);
    if (linkat(source.get(), name_of(from).c_str(), parent_.get(), first_name(name).c_str(), 0) !=
        0)
      return errno;
    if (const int error = give_name(name, 0); error != 0) return error;
    ++files_;
    return 0;
  }

  // Writes long runs of zeros as holes.
  int write_data(const PackEntry& entry, int file) const {
    if (ftruncate(file, static_cast<off_t>(entry.data_size)) != 0) return errno;
    return read_checked(
        pack_, entry, [file](const std::byte* data, std::size_t n, std::uint64_t at) {
          constexpr std::size_t k_block = 64 << 10;
          while (n != 0) {
            const std::size_t part = std::min(n, k_block);
            const bool is_hole =
                data[0] == std::byte{0} && std::memcmp(data, data + 1, part - 1) == 0;
            const ssize_t written = is_hole ? static_cast<ssize_t>(part)
                                            : pwrite(file, data, part, static_cast<off_t>(at));
            if (written < 0 && errno == EINTR) continue;
            if (written <= 0) return written == 0 ? ENOSPC : errno;
            data += written;
            n -= static_cast<std::size_t>(written);
            at += static_cast<std::uint64_t>(written);
          }
          return 0;
        });
  }

  int make_link(const PackEntry& entry, const std::string& path) {
    if (const int error = enter(directory_of(path)); error != 0) return error;
    const std::string name = name_of(path), first_name = this->first_name(name);
    int error = 0;
    const std::string target = read_text(pack_, entry, error);
    if (error != 0) return error;
    if (target.empty() || target.find('\0') != std::string::npos) return EBADMSG;
    if (symlinkat(target.c_str(), parent_.get(), first_name.c_str()) != 0) return errno;
    // Ignores errors, because the link works even if its owner cannot be set.
    (void)!fchownat(parent_.get(), first_name.c_str(), entry.stat.user, entry.stat.group,
                    AT_SYMLINK_NOFOLLOW);
    const timespec times[2] = {
        {0, UTIME_OMIT},
        {entry.stat.modified.seconds, static_cast<long>(entry.stat.modified.nanoseconds)}};
    (void)utimensat(parent_.get(), first_name.c_str(), times, AT_SYMLINK_NOFOLLOW);
    error = give_name(name, 0);
    if (error != 0) return error;
    ++files_;
    return 0;
  }

  struct First {
    std::string path;
    std::uint64_t hash = 0, size = 0;
  };
  const cache::PackReader& pack_;
  int root_;
  bool is_new_, force_;
  // The pid alone is not unique, because containers can share the directory.
  const std::string temporary_ = fmt::format(".cubeshim-extract-{}-{}", getpid(), base::wall_ns());
  Progress& progress_;
  base::UniqueFd parent_;
  std::string parent_path_;
  std::vector<std::pair<std::string, cache::FileStat>> directories_;
  std::vector<std::pair<std::string, PackEntry>> links_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, First> inodes_;
  std::uint64_t files_ = 0, bytes_ = 0, failures_ = 0, in_the_way_ = 0;
};

int extract(const Extract& extract) {
  std::string why;
  const auto pack = cache::PackReader::open(extract.file, why);
  if (pack == nullptr) return complain(1, why);
  std::vector<std::string> wanted;
  for (const auto& given : extract.paths) {
    wanted.push_back(path_in_pack(given));
    const auto entry = pack->find(wanted.back());
    if (!entry)
      return complain(1, fmt::format("{}: {} {}", extract.file, shown(wanted.back()),
                                     pack_trouble(entry.error().value)));
  }
  const bool is_new = mkdir(extract.directory.c_str(), 0777) == 0;
  if (!is_new && errno != EEXIST)
    return complain(
        1, fmt::format("cannot make {}: {}", extract.directory, base::text_of_error(errno)));
  const base::UniqueFd root(open(extract.directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!root)
    return complain(
        1, fmt::format("cannot write into {}: {}", extract.directory, base::text_of_error(errno)));
  note_interrupts();
  Progress progress(extract.progress);
  Extractor extractor(*pack, root.get(), is_new, extract.force, progress);
  cache::PackScan scan = pack->scan();
  PackEntry entry;
  std::string_view path;
  auto next = scan.next(entry, path);
  for (; next == cache::PackScan::Next::record && interrupted_by() == 0;
       next = scan.next(entry, path)) {
    const bool is_wanted =
        wanted.empty() ||
        std::any_of(wanted.begin(), wanted.end(), [&](const auto& w) { return is_below(path, w); });
    if (is_wanted) extractor.take(entry, std::string(path));
    progress.show({.files = extractor.files(),
                   .bytes = extractor.bytes(),
                   .total_files = pack->header().files + pack->header().links,
                   .is_total_final = wanted.empty()});
  }
  extractor.finish();
  progress.clear();
  if (const std::uint64_t more = extractor.failures_untold(); more != 0)
    complain(1, fmt::format("and {} more that failed", more));
  if (const std::uint64_t n = extractor.files_in_the_way(); n != 0)
    complain(1, fmt::format("{} were there already; --force replaces them", n));
  const bool is_damaged = next == cache::PackScan::Next::damaged;
  if (is_damaged)
    complain(1, fmt::format("{}: no valid record after byte {}: the rest is lost", extract.file,
                            scan.position()));
  fmt::print("{} ({}) in {}, {} failed\n", counted(extractor.files(), "file", "files"),
             in_units(extractor.bytes()), printable(extract.directory), extractor.failures());
  if (interrupted_by() != 0) return complain(128 + interrupted_by(), "interrupted");
  return extractor.failures() != 0 || is_damaged ? 1 : 0;
}

}  // namespace

void add_extract(CLI::App& app, int& status) {
  CLI::App* const command =
      app.add_subcommand("extract", "Write files of a pack into a directory, as they were");
  const auto options = std::make_shared<Extract>();
  command->add_option("FILE", options->file, "The pack")->required();
  command
      ->add_option("DIRECTORY", options->directory,
                   "The target directory; it is made if need be, and an existing one keeps its "
                   "mode and times")
      ->required();
  command->add_option("PATH", options->paths,
                      "Files and directories of the pack; the default is all of it");
  command->add_flag("--force", options->force, "Replace files that are there already");
  add_progress_options(*command, options->progress);
  command->callback([options, &status] { status = extract(*options); });
}

}  // namespace cube::cli
