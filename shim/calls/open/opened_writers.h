// Files that are open for writing: no process may cache them until they are closed. Thread-safe and
// async-signal-safe.
#pragma once

#include <string_view>

namespace cube::shim {

// An open for writing has made this fd. `key` is the covered path that it was opened by; empty if
// there is none.
void note_writer(int fd, std::string_view key, bool close_on_exec);
// Like note_writer, but in a child of vfork: its memory is the parent's, and its next program has
// the file open.
void note_vforked_writer(int fd);
// Notes an fd that no open of a path has made. If it is open for writing, its file counts as being
// written until it is closed. Returns the fd.
int note_foreign_fd(int fd);
// Like note_foreign_fd, but for a program that starts. It costs a few system calls, and more only
// if the file's path may lie below a prefix.
void note_inherited_fd(int fd);
// Another process, perhaps one without the library, has opened this file for writing. The file
// counts as being written until this process ends.
void note_foreign_writer(int dir, const char* path);

}  // namespace cube::shim
