// Files that are open for writing. No process may cache such a file until it is closed. Thread-safe
// and async-signal-safe.
#pragma once

#include <cstdint>
#include <string_view>

namespace cube::shim {

// Notes an fd that an open for writing has returned. `key` is the absolute path of the file if a
// prefix covers it, and empty otherwise. `made_after_ns`: a time before the open (base::boot_ns) if
// the open seems to have created the file; 0: the file is older, or may be.
void note_writer(int fd, std::string_view key, bool close_on_exec, std::uint64_t made_after_ns = 0);
// Like note_writer, but in a child of vfork. Such a child uses its parent's memory, and its next
// program inherits the open file.
void note_vforked_writer(int fd, std::uint64_t made_after_ns);
// Notes an fd that was not made by opening a path. If it is open for writing, its file counts as
// being written until the fd is closed. Returns the fd.
int note_foreign_fd(int fd);
// Like note_foreign_fd, but for the fds that a program has at its start. If the file lies outside
// all prefixes, costs at most two system calls.
void note_inherited_fd(int fd);
// Notes that another process, perhaps without the library, has opened this file for writing. The
// file counts as being written until this process ends. `made_after_ns`: see note_writer; here, a
// value other than 0 is trusted.
void note_foreign_writer(int dir, const char* path, std::uint64_t made_after_ns = 0);

}  // namespace cube::shim
