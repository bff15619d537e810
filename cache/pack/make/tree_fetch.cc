#include "cache/pack/make/tree_fetch.h"

#include <dirent.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <system_error>

#include "cache/base/whole_read.h"
#include "cache/pack/pack_format.h"

namespace cube::cache {

namespace sys = base::sys;
using What = FetchedEntry::What;

namespace {

constexpr int k_tries = 3;

FetchedEntry failed_with(int error) {
  FetchedEntry entry;
  entry.what = error == ENOENT ? What::missing : What::unreadable;
  entry.error = error;
  return entry;
}

bool is_unchanged(int fd, const FileStat& before) {
  const auto after = stat_fd(fd, k_ask_server);
  return after && after->is_unchanged_since(before);
}

FetchedEntry read_file(int fd) {
  FetchedEntry entry;
  for (int i = 0; i < k_tries; ++i) {
    const auto stat = stat_fd(fd);
    if (!stat) return failed_with(stat.error().value);
    entry.stat = *stat;
    if (!stat->is_regular()) {
      entry.what = (stat->mode & S_IFMT) == S_IFDIR ? What::directory : What::special;
      return entry;
    }
    if (stat->size > k_fetched_whole) {
      entry.what = What::large_file;
      return entry;
    }
    entry.size = stat->size;
    entry.data = std::make_unique_for_overwrite<std::byte[]>(entry.size);
    base::WholeRead read(entry.data.get(), entry.size);
    auto state = base::ReadState::more;
    while (state == base::ReadState::more) {
      const long n = sys::raw(SYS_preadv, fd, sys::arg(read.aim()), read.k_parts,
                              static_cast<long>(read.got()));
      if (n == -EINTR) continue;
      if (sys::failed(n)) return failed_with(static_cast<int>(-n));
      state = read.after(n);
    }
    entry.what = What::file;
    if (state == base::ReadState::whole && is_unchanged(fd, entry.stat)) return entry;
  }
  entry.what = What::changing;
  entry.data.reset();
  return entry;
}

FetchedEntry read_link(int directory, const char* name, const FileStat& stat) {
  FetchedEntry entry;
  entry.stat = stat;
  entry.data = std::make_unique_for_overwrite<std::byte[]>(PATH_MAX);
  const long n =
      sys::readlinkat(directory, name, reinterpret_cast<char*>(entry.data.get()), PATH_MAX);
  if (sys::failed(n)) return failed_with(static_cast<int>(-n));
  if (n == 0 || n == PATH_MAX) return failed_with(EINVAL);
  // Asks again, because another link may have replaced this link after the stat.
  const auto after = stat_path(directory, name, AT_SYMLINK_NOFOLLOW | k_ask_server);
  entry.what = after && after->is_unchanged_since(stat) ? What::link : What::changing;
  entry.size = static_cast<std::size_t>(n);
  return entry;
}

}  // namespace

bool is_same_entry(const FileStat& packed, const FileStat& origin) {
  // Compares the whole stat, because the old record must be exactly the record that this run would
  // write.
  const FileStat now = packed_stat(origin, packed.device_minor);
  return std::memcmp(&packed, &now, sizeof now) == 0;
}

base::Result<base::UniqueFd> open_entry(int directory, const char* name) {
  const long fd =
      sys::openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (sys::failed(fd)) return base::fail(static_cast<int>(-fd));
  return base::UniqueFd(static_cast<int>(fd));
}

FetchedEntry fetch_entry(int directory, const char* name, std::uint8_t type, const FileStat* old) {
  // Opens a regular file without a stat of its path before, which saves a third of the requests to
  // a slow mount.
  if (type == DT_REG && old == nullptr) {
    const auto fd = open_entry(directory, name);
    if (fd) return read_file(fd->get());
    if (fd.error().value != ELOOP) return failed_with(fd.error().value);
  }
  const auto stat =
      stat_path(directory, name, AT_SYMLINK_NOFOLLOW | (old != nullptr ? k_ask_server : 0));
  if (!stat) return failed_with(stat.error().value);
  FetchedEntry entry;
  entry.stat = *stat;
  if (old != nullptr && is_same_entry(*old, *stat)) {
    entry.what = What::same;
    return entry;
  }
  switch (stat->mode & S_IFMT) {
    case S_IFREG: break;
    case S_IFLNK: return read_link(directory, name, *stat);
    case S_IFDIR: entry.what = What::directory; return entry;
    default: entry.what = What::special; return entry;
  }
  const auto fd = open_entry(directory, name);
  return fd ? read_file(fd->get()) : failed_with(fd.error().value);
}

Crew::Crew(unsigned threads) {
  threads_.reserve(threads);
  for (unsigned i = 0; i < threads; ++i) {
    try {
      threads_.emplace_back([this] { work(); });
    } catch (const std::system_error&) {
      break;  // no more threads can be created, but the existing threads suffice
    }
  }
}

Crew::~Crew() {
  {
    const std::scoped_lock lock(mutex_);
    is_over_ = true;
  }
  is_called_.notify_all();
  for (auto& thread : threads_) thread.join();
}

void Crew::run(std::size_t count, const std::function<void(std::size_t)>& part) {
  if (threads_.empty()) {
    for (std::size_t i = 0; i < count; ++i) part(i);
    return;
  }
  std::unique_lock lock(mutex_);
  part_ = &part;
  next_ = 0;
  count_ = left_ = count;
  is_called_.notify_all();
  is_done_.wait(lock, [&] { return left_ == 0; });
  part_ = nullptr;
}

void Crew::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    is_called_.wait(lock, [&] { return is_over_ || next_ < count_; });
    if (is_over_) return;
    const std::size_t mine = next_++;
    const auto* const part = part_;
    lock.unlock();
    (*part)(mine);
    lock.lock();
    if (--left_ == 0) is_done_.notify_one();
  }
}

}  // namespace cube::cache
