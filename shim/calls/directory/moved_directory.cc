#include "shim/calls/directory/moved_directory.h"

#include <dirent.h>

#include <cerrno>
#include <cstring>

#include "cache/base/process/aside.h"
#include "cache/base/unique_fd.h"
#include "cache/record/directory_data.h"
#include "shim/path/path_filter.h"

namespace cube::shim {

namespace sys = base::sys;

namespace {

using cache::DirectoryData;

// The most opens that are tried, and the most entries that are visited, in all.
constexpr int k_most_opens = 256, k_most_entries = 100'000;

class Search {
 public:
  Search(const cache::Listing& listing, int flags) : listing_(listing), flags_(flags) {}
  // Searches one directory. `below` is the rest of the path after the name of an entry.
  long through(const char* directory, std::string_view below);

 private:
  long at(int directory, std::string_view name, std::string_view below);

  const cache::Listing& listing_;
  int flags_;
  int opens_ = k_most_opens, entries_ = k_most_entries;
};

long Search::at(int directory, std::string_view name, std::string_view below) {
  base::Aside path;
  if (!path || name.size() + below.size() + 1 > base::Aside::k_bytes || opens_-- <= 0)
    return -ENOENT;
  std::memcpy(path.data(), name.data(), name.size());
  std::memcpy(path.data() + name.size(), below.data(), below.size());
  path.data()[name.size() + below.size()] = '\0';
  const long fd = sys::openat(directory, path.data(), flags_ | O_NOFOLLOW);
  if (sys::failed(fd)) return -ENOENT;
  const auto stat = cache::stat_fd(static_cast<int>(fd));
  if (stat && stat->same_file(listing_.stat())) return fd;
  sys::close(static_cast<int>(fd));
  return -ENOENT;
}

long Search::through(const char* directory, std::string_view below) {
  const base::Result<base::UniqueFd> own =
      base::open_fd(directory, O_RDONLY | O_DIRECTORY | O_NONBLOCK);
  base::Aside room;
  if (!own || !room) return -ENOENT;
  while (entries_ > 0 && opens_ > 0) {
    const long n =
        sys::raw(SYS_getdents64, own->get(), sys::arg(room.data()), base::Aside::k_bytes);
    if (n <= 0) return -ENOENT;
    DirectoryData::Entry entry;
    for (DirectoryData::Reader reader({room.bytes(), static_cast<std::size_t>(n)});
         reader.next(entry);) {
      --entries_;
      const bool may_be = (entry.type == DT_DIR || entry.type == DT_UNKNOWN) && !entry.is_dots();
      if (!may_be || (below.empty() && entry.inode != listing_.stat().inode)) continue;
      if (const long fd = at(own->get(), entry.name, below); !sys::failed(fd)) return fd;
    }
  }
  return -ENOENT;
}

}  // namespace

long open_moved_directory(const cache::Listing& listing, int flags) {
  const std::string_view path = listing.path();
  base::Aside above;
  if (!above) return -ENOENT;
  Search search(listing, flags);
  std::size_t end = path.size();
  while (path_filter::covers_found(path.substr(0, end))) {
    const std::string_view below = path.substr(end);
    end = path.rfind('/', end - 1);
    const std::size_t length = end == 0 ? 1 : end;
    std::memcpy(above.data(), path.data(), length);
    above.data()[length] = '\0';
    if (const long fd = search.through(above.data(), below); !sys::failed(fd)) return fd;
    if (end == 0) break;
  }
  return -ENOENT;
}

}  // namespace cube::shim
