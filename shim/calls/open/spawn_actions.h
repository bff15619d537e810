// Finds the files that a spawned child opens for writing on its way to its program
// (posix_spawn_file_actions_addopen): libc opens them by calls that bypass us. The list is libc's
// own and opaque; its layout has not changed since 2004, and is tested before it is trusted. If the
// layout differs, a spawn with such a list voids all that is cached. Thread safety: all of it.
// Calls malloc, as libc's functions of that kind do.
#pragma once

#include <spawn.h>

namespace cube::shim {

// Call it after the spawn, whatever its result: a child may have truncated a file and then found no
// program.
void note_spawned_writers(const posix_spawn_file_actions_t* actions);

}  // namespace cube::shim
