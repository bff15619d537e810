// The kernel's file for a served one: the origin's own, opened by the record's path and found to be
// the same file; otherwise a copy of the bytes. Functions return an fd, or -errno. Thread-safe and
// async-signal-safe. Call them with signals blocked.
#pragma once

#include "shim/fd/open_file.h"

namespace cube::shim::kernel_file {

// same_file: accepts the origin's file even if its bytes have changed, but no copy while the origin
// still has the file, because locking or changing a copy would not affect the file.
enum class Accept : bool { same_content, same_file };

// The origin's own file, if it is still the one that the program has opened.
int open_origin(const OpenFile& file, Accept accept);
// The origin's own file or a copy, with the flags of the program's open. `fd`, whose row is locked,
// is a placeholder of the file. It is closed if the process is at its limit of fds and has one
// thread; the result may then be the same number.
int open(const OpenFile& file, Accept accept, int fd);
// A read-only memfd with the bytes of a record; for mode real, and for mappings.
int copy_bytes_of(const cache::Record& record);
// Like copy_bytes_of, but empty.
int make_empty();
}  // namespace cube::shim::kernel_file
