#include "shim/cli/warmup/named_paths.h"

#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "cache/base/error_text.h"
#include "cache/base/path.h"
#include "cache/record/file_stat.h"
#include "prefetch/order/list_paths.h"
#include "shim/cli/run/working_directory.h"

namespace cube::cli {
namespace {

// Makes the system call directly, because libc has memfd_create only since 2.27.
int own_memfd(const char* name) {
  return static_cast<int>(::syscall(SYS_memfd_create, name, MFD_CLOEXEC));
}

bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

std::string by_number(const base::UniqueFd& fd) {
  return fmt::format("/proc/self/fd/{}", fd.get());
}

// Returns the absolute name by which a prefix covers the path. If no prefix covers it, returns any
// absolute name.
std::string absolute(const std::string& text, const std::vector<std::string>& prefixes) {
  std::string path, first;
  for (const auto& directory : names_of_working_directory()) {
    if (prefetch::fold_path(directory, text, path) != prefetch::Folded::ok) continue;
    if (first.empty()) first = path;
    if (std::any_of(prefixes.begin(), prefixes.end(),
                    [&](const auto& p) { return base::is_at_or_below(path, p); }))
      return path;
  }
  return first.empty() ? text : first;
}

}  // namespace

bool NamedInput::prepare(const std::vector<std::string>& prefixes, std::string& why) {
  lists.clear();
  directories.clear();
  return (paths.empty() || take_paths(prefixes, why)) && (list.empty() || take_list(prefixes, why));
}

// Writes the paths to a temporary list, so that one list reader handles all of them.
bool NamedInput::take_paths(const std::vector<std::string>& prefixes, std::string& why) {
  paths_fd_ = base::UniqueFd(own_memfd("cubeshim-paths"));
  std::string text;
  for (const auto& named : paths) {
    std::string path = absolute(named, prefixes);
    const auto stat = cache::stat_path(AT_FDCWD, path.c_str(), 0);
    if (stat && (stat->mode & S_IFMT) == S_IFDIR) {
      directories.push_back(path);
      path += '/';
    }
    text += path + '\0';
  }
  if (!paths_fd_ || !write_all(paths_fd_.get(), text)) {
    why = fmt::format("cannot keep the paths: {}", base::text_of_error(errno));
    return false;
  }
  lists.push_back({.list = by_number(paths_fd_), .prefixes = prefixes, .directory = "/"});
  return true;
}

bool NamedInput::take_list(const std::vector<std::string>& prefixes, std::string& why) {
  if (list != "-") {
    lists.push_back({.list = absolute(list, prefixes), .prefixes = prefixes});
    return true;
  }
  const char* const directory = std::getenv("TMPDIR");
  list_fd_ = base::UniqueFd(
      ::open(directory != nullptr ? directory : "/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  // Some file systems do not support files without a name.
  if (!list_fd_) list_fd_ = base::UniqueFd(own_memfd("cubeshim-list"));
  bool is_well = static_cast<bool>(list_fd_);
  std::vector<char> block(64 << 10);
  while (is_well) {
    const ssize_t n = ::read(STDIN_FILENO, block.data(), block.size());
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) break;
    is_well = n > 0 && write_all(list_fd_.get(), {block.data(), static_cast<std::size_t>(n)});
  }
  if (!is_well) {
    why = fmt::format("cannot take the list from standard input: {}", base::text_of_error(errno));
    return false;
  }
  lists.push_back(
      {.list = by_number(list_fd_), .prefixes = prefixes, .directory = absolute(".", prefixes)});
  return true;
}

std::unique_ptr<NamedPaths> NamedPaths::open(const NamedInput& input, std::string& why) {
  auto named = std::make_unique<NamedPaths>();
  named->first_list_ = input.paths.empty() ? 0 : 1;
  for (const auto& options : input.lists) {
    auto list = prefetch::PathList::open(options, why);
    if (list == nullptr) return nullptr;
    named->lists_.push_back(std::move(list));
  }
  return named;
}

bool NamedPaths::next(prefetch::PlannedFile& file) {
  for (std::size_t i = 0; i < lists_.size(); ++i) {
    prefetch::PathEntry entry;
    if (lists_[i]->next(entry) != prefetch::PathList::Next::entry) continue;
    file = {.path = entry.path, .reader = static_cast<std::uint32_t>(i), .sequence = given_++};
    return true;
  }
  return false;
}

}  // namespace cube::cli
