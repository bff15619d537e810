// Opens a kernel file for a served file: the origin's own, if the record's path still leads to the
// same file, otherwise a copy of the bytes. All functions return an fd or -errno. Call these
// functions with signals blocked. Thread-safe and async-signal-safe.
#pragma once

#include "shim/fd/open_file.h"

namespace cube::shim::kernel_file {

// same_file accepts the origin's file even if its bytes have changed. With same_file, a copy is
// accepted only if the origin no longer has the file, because a lock on a copy, or a change of the
// copy, would not affect the origin's file.
enum class Accept : bool { same_content, same_file };

// Opens the origin's own file, if it is still the file that the program opened.
int open_origin(const OpenFile& file, Accept accept);
// Opens the origin's own file or a copy, with the flags of the program's open. `fd` is a
// placeholder of the file, and its row is locked. If the process has reached its limit of fds and
// has one thread, closes `fd`, and may then return an fd of the same number.
int open(const OpenFile& file, Accept accept, int fd);
// Makes a read-only memfd with the bytes of a record, for mode real and for mappings.
int copy_bytes_of(const cache::Record& record);
// Like copy_bytes_of, but makes an empty file.
int make_empty();
}  // namespace cube::shim::kernel_file
