#include "cache/tier/disk/disk_directory.h"

#include <fmt/core.h>
#include <sys/file.h>
#include <sys/statfs.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <iterator>
#include <memory>
#include <utility>

#include "cache/base/clock.h"
#include "cache/base/error_text.h"
#include "cache/base/file_io.h"
#include "cache/base/process/rlimit_fsize.h"
#include "cache/tier/disk/segment_format.h"

namespace cube::cache {

namespace sys = base::sys;

namespace {

constexpr std::string_view k_prefix = "segment-";
constexpr std::size_t k_digits = 8;
constexpr std::size_t k_block = 32 << 10;

std::string version_line() { return fmt::format("cubeshim disk {}\n", k_disk_version); }

bool parse_segment(std::string_view name, std::uint32_t& number) {
  if (name.size() != k_prefix.size() + k_digits || !name.starts_with(k_prefix)) return false;
  name.remove_prefix(k_prefix.size());
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  return error == std::errc{} && end == name.data() + name.size();
}

}  // namespace

bool try_lock(int fd, int operation) {
  return !sys::failed(sys::raw(SYS_flock, fd, operation | LOCK_NB));
}

// Does not use fmt, which needs 2 KB of stack, because a signal handler with a small stack may call
// this.
DiskDirectory::Path DiskDirectory::path_below(std::string_view name) const {
  Path path;
  const std::size_t head = std::min(path_.size(), k_longest),
                    tail = std::min(name.size(), sizeof path.text - head - 2);
  std::memcpy(path.text, path_.data(), head);
  path.text[head] = '/';
  std::memcpy(path.text + head + 1, name.data(), tail);
  path.text[head + 1 + tail] = '\0';
  return path;
}

DiskDirectory::Path DiskDirectory::path_of(const char* name) const { return path_below(name); }

DiskDirectory::Path DiskDirectory::path_of_segment(std::uint32_t number) const {
  char digits[10];  // room for any number
  const auto n =
      static_cast<std::size_t>(std::to_chars(digits, std::end(digits), number).ptr - digits);
  char name[k_prefix.size() + sizeof digits];
  const std::size_t zeros = n < k_digits ? k_digits - n : 0;
  std::memcpy(name, k_prefix.data(), k_prefix.size());
  std::memset(name + k_prefix.size(), '0', zeros);
  std::memcpy(name + k_prefix.size() + zeros, digits, n);
  return path_below({name, k_prefix.size() + zeros + n});
}

base::Result<base::UniqueFd> DiskDirectory::open_segment(std::uint32_t number, int flags) const {
  auto fd = base::open_fd(path_of_segment(number).text, flags | k_open_below, 0600);
  struct ::stat st {};
  // Checks the owner of the file, because another user who owns a directory above could replace the
  // file.
  if (fd &&
      (sys::failed(sys::fstat(fd->get(), &st)) || !S_ISREG(st.st_mode) || st.st_uid != owner_))
    return base::fail(EPERM);
  return fd;
}

base::Result<void> DiskDirectory::name_it(const std::string& parent, const std::string& name,
                                          std::string& why) {
  path_ = fmt::format("{}/cubeshim-{}-{}", parent, sys::geteuid(), name);
  if (path_.size() <= k_longest) return {};
  why =
      fmt::format("CUBESHIM_DISK_DIR is too long: {} bytes with the name of the cache, it takes {}",
                  path_.size(), k_longest);
  return base::fail(ENAMETOOLONG);
}

base::Result<void> DiskDirectory::find_it(std::string& why) {
  const auto fd = base::open_fd(path_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (!fd) {
    why = fmt::format("cannot open {}: {}", path_, base::text_of_error(fd.error().value));
    return base::fail(fd.error().value);
  }
  struct ::stat st {};
  sys::fstat(fd->get(), &st);
  if (st.st_uid != sys::geteuid() || (st.st_mode & 022) != 0) {
    why = fmt::format(
        "{} is refused: it must be a directory of this user that no other user may write to",
        path_);
    return base::fail(EPERM);
  }
  owner_ = st.st_uid;
  return {};
}

base::Result<DiskDirectory> DiskDirectory::look(const std::string& parent, const std::string& name,
                                                std::string& why) {
  DiskDirectory directory;
  if (const auto named = directory.name_it(parent, name, why); !named)
    return base::fail(named.error().value);
  if (const auto found = directory.find_it(why); !found) return base::fail(found.error().value);
  return directory;
}

base::Result<DiskDirectory> DiskDirectory::open(const std::string& parent, const std::string& name,
                                                bool is_read_only, std::string& why) {
  DiskDirectory directory;
  if (const auto named = directory.name_it(parent, name, why); !named)
    return base::fail(named.error().value);
  if (!is_read_only) {
    const auto make = [](const std::string& path) {
      return sys::raw(SYS_mkdirat, AT_FDCWD, sys::arg(path.c_str()), 0700);
    };
    long made = make(directory.path_);
    // Creates at most one missing parent. If more are missing, the path is probably mistyped.
    if (made == -ENOENT) {
      make(parent);
      made = make(directory.path_);
    }
    if (sys::failed(made) && made != -EEXIST) {
      const int error = static_cast<int>(-made);
      why = fmt::format("CUBESHIM_DISK_DIR={}: {}; it takes a writable directory on a local disk",
                        parent, base::text_of_error(error));
      return base::fail(error);
    }
  }
  if (const auto found = directory.find_it(why); !found) return base::fail(found.error().value);
  if (const auto checked = directory.check_version(is_read_only, why); !checked)
    return base::fail(checked.error().value);
  return directory;
}

base::Result<void> DiskDirectory::write_version(std::string_view text) const {
  if (text.size() > base::file_size_limit()) return base::fail(EFBIG);
  // The pid alone is not unique, because two containers can share the directory. If another process
  // does the same at the same time, it writes the same text.
  const Path temporary =
      path_of(fmt::format("version.{}.{}", sys::getpid(), base::wall_ns()).c_str());
  auto fd = base::open_fd(temporary.text, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
  if (!fd) return base::fail(fd.error().value);
  auto written = base::write_at(fd->get(), text.data(), text.size(), 0);
  // Without the fsync, a crash of the machine could leave an empty file with the final name.
  if (const long synced = written ? sys::fsync(fd->get()) : 0; sys::failed(synced))
    written = base::fail(static_cast<int>(-synced));
  // Uses linkat, because it does not replace a file that another process has just created. The lock
  // of such a file may already be held.
  const Path path = path_of("version");
  const long linked = written ? sys::raw(SYS_linkat, AT_FDCWD, sys::arg(temporary.text), AT_FDCWD,
                                         sys::arg(path.text), 0)
                              : 0;
  sys::unlink(temporary.text);
  if (sys::failed(linked) && linked != -EEXIST) return base::fail(static_cast<int>(-linked));
  return written;
}

base::Result<void> DiskDirectory::check_version(bool is_read_only, std::string& why) const {
  const std::string wanted = version_line();
  const Path path = path_of("version");
  auto fd = base::open_fd(path.text, O_RDONLY | k_open_below);
  const auto fail_with = [&](int error) {
    why = fmt::format("cannot use {}: {}", static_cast<const char*>(path.text),
                      base::text_of_error(error));
    return base::fail(error);
  };
  if (!fd && fd.error().value == ENOENT && !is_read_only) {
    const auto segments = list_segments();
    if (!segments) return fail_with(segments.error().value);
    if (!segments->empty()) {
      why = fmt::format(
          "{} is refused: it has segments and no file `version`; remove it or set another "
          "CUBESHIM_NAME",
          path_);
      return base::fail(EPROTO);
    }
    if (const auto made = write_version(wanted); !made) return fail_with(made.error().value);
    fd = base::open_fd(path.text, O_RDONLY | k_open_below);
  }
  if (!fd) return fail_with(fd.error().value);
  char text[64];
  const long n = sys::read(fd->get(), text, sizeof text);
  if (sys::failed(n)) return fail_with(static_cast<int>(-n));
  std::string_view found(text, static_cast<std::size_t>(n));
  if (found == wanted) return {};
  if (found.ends_with('\n')) found.remove_suffix(1);
  why = fmt::format(
      "{} is of the format '{}', this library has '{}': remove it or set another CUBESHIM_NAME",
      path_, found, std::string_view(wanted).substr(0, wanted.size() - 1));
  return base::fail(EPROTO);
}

base::Result<DirectoryLock> DiskDirectory::lock(long at_most_ms) const {
  auto fd = base::open_fd(path_of("version").text, O_RDONLY | k_open_below);
  if (!fd) return base::fail(fd.error().value);
  const std::uint64_t deadline =
      base::monotonic_ns() + static_cast<std::uint64_t>(at_most_ms) * 1'000'000;
  while (!try_lock(fd->get(), LOCK_EX)) {
    // Polls, because flock has no timeout, and the holder of the lock may be stopped (SIGSTOP).
    if (base::monotonic_ns() >= deadline) return base::fail(EBUSY);
    const timespec pause{0, 1'000'000};
    sys::raw(SYS_nanosleep, sys::arg(&pause), 0);
  }
  return DirectoryLock(std::move(*fd));
}

DirectoryLock::~DirectoryLock() {
  if (fd_) try_lock(fd_.get(), LOCK_UN);
}

base::Result<std::vector<std::uint32_t>> DiskDirectory::list_segments() const {
  const auto fd = base::open_fd(path_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (!fd) return base::fail(fd.error().value);
  const std::unique_ptr<std::byte[]> block(new (std::nothrow) std::byte[k_block]);
  if (block == nullptr) return base::fail(ENOMEM);
  std::vector<std::uint32_t> numbers;
  const auto listed = base::visit_entries(fd->get(), {block.get(), k_block},
                                          [&](const base::DirectoryEntry& entry) {
                                            std::uint32_t number = 0;
                                            if (parse_segment(entry.c_str(), number))
                                              numbers.push_back(number);
                                          });
  if (!listed) return base::fail(listed.error().value);
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

base::Result<DiskDirectory::DiskRoom> DiskDirectory::room() const {
  struct ::statfs fs {};
  const long error = sys::raw(SYS_statfs, sys::arg(path_.c_str()), sys::arg(&fs));
  if (sys::failed(error)) return base::fail(static_cast<int>(-error));
  const auto block = static_cast<std::uint64_t>(fs.f_bsize);
  return DiskRoom{.total = static_cast<std::uint64_t>(fs.f_blocks) * block,
                  .available = static_cast<std::uint64_t>(fs.f_bavail) * block};
}

}  // namespace cube::cache
