// The profiler's rows of open files, one for each fd: how a file is read, and in which pattern. A
// row is added to the totals when its file is closed. Thread-safe and async-signal-safe. If two
// threads use one fd at the same time, only the recorded offsets may be wrong.
#pragma once

#include "shim/profile/tables.h"

namespace cube::shim::profile {

inline FdRow* row_of_fd(Tables& tables, int fd) {
  return static_cast<unsigned>(fd) < Tables::k_fds ? &tables.fds[static_cast<std::size_t>(fd)]
                                                   : nullptr;
}

// Notes that the fd now refers to this file. `site` is the row of the call site that opened it.
// `flags` may hold k_directory and k_other_use.
void begin_open(Tables& tables, FdRow& row, std::uint64_t path_hash, std::uint32_t site,
                std::uint32_t flags);
// Notes that the fd of `to` is now a dup of the fd of `from`. When the fd of `to` is closed, its
// reads are added to `from`.
void begin_copy(Tables& tables, FdRow& from, FdRow& to);
// One call on a file, by path or by fd.
struct FileUse {
  bool is_open = false, is_read = false;  // is_open: an open for reading
  base::Way way = base::Way::memory;
  std::uint64_t begin_ns = 0, end_ns = 0;
  std::size_t bytes = 0;
};
void note_use(Tables& tables, std::uint64_t path_hash, const FileUse& use);
// Notes a read. `at` is -1 if the read was made at the file's own offset.
void note_read(FdRow& row, std::int64_t at, std::size_t wanted, std::size_t got, std::uint64_t ns);
// `size` is the size of the whole file.
void note_size(FdRow& row, std::uint64_t size);
void note_seek(FdRow& row, std::int64_t offset, int whence, std::int64_t result, std::uint64_t ns);
// Call this before the close. The fd is no longer watched afterwards.
void end_open(Tables& tables, FdRow& row);
// Like end_open, but for all files that are still open when the process ends.
void end_all(Tables& tables);

}  // namespace cube::shim::profile
