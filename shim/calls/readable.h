// Looks up a served file for a read. Thread-safe and async-signal-safe.
#pragma once

#include "shim/fd/fd_table.h"
#include "shim/fd/materialize.h"

namespace cube::shim::file_calls {

enum class Copies : bool { left_to_the_kernel, too };

// Returns the served file of the fd if its bytes may be returned to the program. Returns an empty
// reference if the fd is not served, or if the file has changed since its open and was therefore
// materialized.
[[gnu::always_inline]] inline OpenFileRef readable(int fd,
                                                   Copies copies = Copies::left_to_the_kernel) {
  OpenFileRef file = g_fds.acquire(fd);
  if (!file) return {};
  if (file->record->is_stale() && !file->is_filling()) [[unlikely]] {
    materialize_changed(fd, file);
    return file;
  }
  if (file->is_copy() && copies == Copies::left_to_the_kernel && !file->shares_offset()) return {};
  return file;
}

}  // namespace cube::shim::file_calls
