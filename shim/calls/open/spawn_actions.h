// Finds the files that a spawned child opens for writing before it executes its program
// (posix_spawn_file_actions_addopen), because libc opens them with internal calls that bypass us.
// The list is libc's own and opaque; its layout has not changed since 2004, and is checked before
// it is used. If the layout differs, a spawn with such a list invalidates everything that is
// cached. Thread-safe. Calls malloc, as libc's functions of that kind do.
#pragma once

#include <spawn.h>

namespace cube::shim {

// Call it after the spawn, whatever its result: a child may have truncated a file before it failed
// to find its program.
void note_spawned_writers(const posix_spawn_file_actions_t* actions);

}  // namespace cube::shim
