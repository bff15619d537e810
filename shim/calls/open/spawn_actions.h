// Finds the files that a spawned child opens for writing before it executes its program
// (posix_spawn_file_actions_addopen). libc opens them with internal calls that bypass this library.
// The list of actions is opaque. Its layout in libc has not changed since 2004, and is checked
// before use. If the layout differs, a spawn with such a list invalidates the whole cache.
// Thread-safe. Calls malloc, as libc's posix_spawn_file_actions_* functions do.
#pragma once

#include <spawn.h>

namespace cube::shim {

// Call this after the spawn, even if the spawn failed. A child that does not find its program may
// already have truncated a file.
void note_spawned_writers(const posix_spawn_file_actions_t* actions);

}  // namespace cube::shim
