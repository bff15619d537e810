#include "shim/calls/open/program_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "cache/base/hash.h"
#include "cache/base/process/high_fd.h"
#include "shim/calls/name/unmounted_paths.h"
#include "shim/calls/new_fds.h"
#include "shim/process/c_result.h"

namespace cube::shim {
namespace {

namespace sys = base::sys;

// Returns a copy that can be executed, under an fd far above the program's fds.
base::Result<base::UniqueFd> open_program(const cache::Metadata& metadata, std::string_view key) {
  expect_new_fd();
  auto copy = metadata.open_copy(key, O_CLOEXEC);
  if (!copy) return copy;
  base::UniqueFd high = base::raise_fd(std::move(*copy));
  if (process::owns_table()) g_fds.forget(high.get());
  constexpr long k_mode = 0555;
  sys::raw(SYS_fchmod, high.get(), k_mode);
  return high;
}

const cache::Metadata* metadata_of(const char* path, CoveredPath& covered) {
  const bool is_path =
      process::origin_metadata() != nullptr && path != nullptr && std::strchr(path, '/') != nullptr;
  return is_path ? unmounted_paths::of(AT_FDCWD, path, covered) : nullptr;
}

// A library that was copied for the loader. Rows are never removed, because the library may stay
// loaded.
struct LoadedCopy {
  std::uint64_t path_hash = 0;
  std::uint64_t device = 0, inode = 0;  // of the copy
  cache::FileStat stat{};
  int fd = -1;
  std::atomic<bool> is_whole{false};
  char name[32] = {};
};
constexpr std::uint32_t k_loaded_copies = 512;
constinit LoadedCopy g_loaded[k_loaded_copies];
constinit std::atomic<std::uint32_t> g_loaded_count{0};

// False if the program has closed the fd of the copy.
bool is_there(const LoadedCopy& copy) {
  struct ::stat st {};
  return !sys::failed(sys::fstat(copy.fd, &st)) && st.st_dev == copy.device &&
         st.st_ino == copy.inode;
}

const LoadedCopy* find_loaded(std::uint64_t path_hash, const cache::FileStat& stat) {
  const std::uint32_t end =
      std::min(g_loaded_count.load(std::memory_order_acquire), k_loaded_copies);
  for (std::uint32_t i = 0; i < end; ++i) {
    const LoadedCopy& copy = g_loaded[i];
    if (copy.is_whole.load(std::memory_order_acquire) && copy.path_hash == path_hash &&
        copy.stat.is_unchanged_since(stat) && is_there(copy))
      return &copy;
  }
  return nullptr;
}

}  // namespace

ProgramFile::ProgramFile(const char* path) {
  CoveredPath covered;
  const cache::Metadata* const metadata = metadata_of(path, covered);
  if (metadata == nullptr) return;
  auto copy = open_program(*metadata, covered.key());
  if (!copy) {
    const int error = copy.error().value;
    // After ENOENT, the kernel may have a file of this name.
    error_ = error == EISDIR ? EACCES : error == ENOENT ? 0 : error;
    return;
  }
  copy_ = std::move(*copy);
  copy_name_ = base::ProcFdName(copy_.get());
  read_head();
}

// Parses the first line of a script as the kernel does: the first word is the interpreter, and the
// rest of the line is its argument.
void ProgramFile::read_head() {
  char head[sizeof interpreter_] = {};
  const long got = sys::pread(copy_.get(), head, sizeof head - 1, 0);
  if (got < 2 || head[0] != '#' || head[1] != '!') return;
  constexpr const char* k_blank = " \t";
  std::string_view line(head + 2);
  line = line.substr(0, line.find('\n'));
  line.remove_prefix(std::min(line.find_first_not_of(k_blank), line.size()));
  const std::string_view word = line.substr(0, line.find_first_of(k_blank));
  std::string_view rest = line.substr(word.size());
  rest.remove_prefix(std::min(rest.find_first_not_of(k_blank), rest.size()));
  rest = rest.substr(0, rest.find_last_not_of(k_blank) + 1);
  if (word.empty()) {
    error_ = ENOEXEC;
    return;
  }
  std::memcpy(interpreter_, word.data(), word.size());
  if (rest.empty()) return;
  char* const at = interpreter_ + word.size() + 1;
  std::memcpy(at, rest.data(), rest.size());
  argument_ = at;
}

std::size_t ProgramFile::room_for(char* const* arguments) {
  std::size_t n = 0;
  while (arguments != nullptr && arguments[n] != nullptr) ++n;
  // Room for the interpreter, its argument, the script and the final null.
  return (n + 4) * sizeof(char*);
}

char* const* ProgramFile::put_arguments(const char* path, char* const* arguments,
                                        void* room) const {
  auto** const words = static_cast<const char**>(room);
  std::size_t n = 0;
  words[n++] = interpreter_;
  if (argument_ != nullptr) words[n++] = argument_;
  words[n++] = path;
  // The path replaces the first argument.
  for (std::size_t i = 1; arguments != nullptr && arguments[0] != nullptr; ++i) {
    if (arguments[i] == nullptr) break;
    words[n++] = arguments[i];
  }
  words[n] = nullptr;
  return const_cast<char* const*>(words);
}

const char* name_for_loader(const char* path) {
  CoveredPath covered;
  const KeepErrno keep;
  const cache::Metadata* const metadata = metadata_of(path, covered);
  if (metadata == nullptr) return path;
  const auto stat = metadata->stat(covered.key(), cache::Metadata::Follow::last);
  if (!stat || !stat->is_regular()) return path;
  const std::uint64_t hash = base::hash_path(covered.key());
  if (const LoadedCopy* const loaded = find_loaded(hash, *stat); loaded != nullptr)
    return loaded->name;
  auto copy = open_program(*metadata, covered.key());
  struct ::stat st {};
  if (!copy || sys::failed(sys::fstat(copy->get(), &st))) return path;
  const std::uint32_t i = g_loaded_count.fetch_add(1, std::memory_order_acq_rel);
  if (i >= k_loaded_copies) {
    g_loaded_count.store(k_loaded_copies, std::memory_order_relaxed);
    return path;
  }
  LoadedCopy& row = g_loaded[i];
  row.path_hash = hash;
  row.stat = *stat;
  row.device = st.st_dev;
  row.inode = st.st_ino;
  row.fd = copy->release();
  *fmt::format_to_n(row.name, sizeof row.name - 1, "/proc/self/fd/{}", row.fd).out = '\0';
  row.is_whole.store(true, std::memory_order_release);
  return row.name;
}

}  // namespace cube::shim
