// The files that a spawned child opens for writing on its way to its program
// (posix_spawn_file_actions_addopen): libc opens them by calls that pass us by. The list is libc's
// own and opaque; what it looks like has not changed since 2004, and is tried out before it is
// believed. If the list looks otherwise, a spawn with it voids all that is cached. Thread safety:
// all of it. Calls malloc, as libc's functions of that kind do.
#pragma once

#include <spawn.h>

namespace cube::shim {

// After the spawn, whatever has come of it: a child may have truncated a file and then found no
// program.
void note_spawned_writers(const posix_spawn_file_actions_t* actions);

}  // namespace cube::shim
