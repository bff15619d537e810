// Files that are open for writing. No process may cache such a file until it is closed. Thread-safe
// and async-signal-safe.
#pragma once

#include <string_view>

namespace cube::shim {

// Notes an fd that an open for writing has made. `key` is the covered path of the open, or empty if
// no prefix covers the path. `is_new`: the open has certainly made the file.
void note_writer(int fd, std::string_view key, bool close_on_exec, bool is_new = false);
// Like note_writer, but in a child of vfork, which uses its parent's memory and whose next program
// inherits the open file.
void note_vforked_writer(int fd);
// Notes an fd that was not made by opening a path. If it is open for writing, its file counts as
// being written until the fd is closed. Returns the fd.
int note_foreign_fd(int fd);
// Like note_foreign_fd, but for the fds of a program that starts. Makes a few system calls. If the
// file's path may lie below a prefix, makes more.
void note_inherited_fd(int fd);
// Notes that another process, perhaps without the library, has opened this file for writing. The
// file counts as being written until this process ends.
void note_foreign_writer(int dir, const char* path);

}  // namespace cube::shim
