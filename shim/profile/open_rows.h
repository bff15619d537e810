// The profiler's view of open files, by their numbers: how each is read, and by which pattern,
// summed up when it is closed. Thread safety: all of it; async-signal-safe. Two threads that use
// one number at a time may mix up its offsets, and no more.
#pragma once

#include "shim/profile/tables.h"

namespace cube::shim::profile {

inline FdRow* row_of_fd(Tables& tables, int fd) {
  return static_cast<unsigned>(fd) < Tables::k_fds ? &tables.fds[static_cast<std::size_t>(fd)]
                                                   : nullptr;
}

// The number is this file from now on. `site`: its row; `flags`: k_directory, k_other_use.
void begin_open(Tables& tables, FdRow& row, std::uint64_t path_hash, std::uint32_t site,
                std::uint32_t flags);
// The number `to` is a copy of the number `from` from now on: the same open file. Its reads count
// for `from` when it is closed.
void begin_copy(Tables& tables, FdRow& from, FdRow& to);
// `at` is -1 for a read at the file's own offset.
void note_read(FdRow& row, std::int64_t at, std::size_t wanted, std::size_t got, std::uint64_t ns);
// The whole of the file.
void note_size(FdRow& row, std::uint64_t size);
void note_seek(FdRow& row, std::int64_t offset, int whence, std::int64_t result, std::uint64_t ns);
// Before the close. The number is no file of ours from then on.
void end_open(Tables& tables, FdRow& row);
// The same for all that is still open at the end.
void end_all(Tables& tables);

}  // namespace cube::shim::profile
