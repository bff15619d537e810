// The profiler's view of open files, by their fds: how each is read, and in which pattern. The
// figures are added up when it is closed. Thread-safe and async-signal-safe. If two threads use one
// fd at the same time, only its offsets may be wrong.
#pragma once

#include "shim/profile/tables.h"

namespace cube::shim::profile {

inline FdRow* row_of_fd(Tables& tables, int fd) {
  return static_cast<unsigned>(fd) < Tables::k_fds ? &tables.fds[static_cast<std::size_t>(fd)]
                                                   : nullptr;
}

// The fd refers to this file from now on. `site` is the row of its call site; `flags` are
// k_directory, k_other_use.
void begin_open(Tables& tables, FdRow& row, std::uint64_t path_hash, std::uint32_t site,
                std::uint32_t flags);
// From now on, the fd of `to` is a copy of the fd of `from`: the same open file. Its reads count
// for `from` when it is closed.
void begin_copy(Tables& tables, FdRow& from, FdRow& to);
// One call on a file, by its path or an fd.
struct FileUse {
  bool is_open = false, is_read = false;  // is_open: to be read
  base::Way way = base::Way::memory;
  std::uint64_t begin_ns = 0, end_ns = 0;
  std::size_t bytes = 0;
};
void note_use(Tables& tables, std::uint64_t path_hash, const FileUse& use);
// `at` is -1 for a read at the file's own offset.
void note_read(FdRow& row, std::int64_t at, std::size_t wanted, std::size_t got, std::uint64_t ns);
// `size` is that of the whole file.
void note_size(FdRow& row, std::uint64_t size);
void note_seek(FdRow& row, std::int64_t offset, int whence, std::int64_t result, std::uint64_t ns);
// Call it before the close. The fd is not watched from then on.
void end_open(Tables& tables, FdRow& row);
// Like end_open, but for all files that are still open at the end.
void end_all(Tables& tables);

}  // namespace cube::shim::profile
