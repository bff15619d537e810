// Finds the files that a spawned child opens for writing before it executes its program
// (posix_spawn_file_actions_addopen). libc opens them with internal calls that bypass this library.
// The list of actions is opaque, so its layout is checked before use. If the layout differs, a
// spawn with a list of actions invalidates the whole cache. Thread-safe. Calls malloc, as libc's
// posix_spawn_file_actions_* functions do.
#pragma once

#include <spawn.h>

#include <bitset>
#include <cstdint>

namespace cube::shim {

// The actions that will create a file. The n-th bit of `made` stands for the n-th action that opens
// a file to change it. Call new_files() before the spawn.
struct NewFiles {
  std::uint64_t asked_ns = 0;  // base::boot_ns
  std::bitset<64> made;
};
NewFiles new_files(const posix_spawn_file_actions_t* actions);
// Call this after the spawn, even if it failed: a child that does not find its program may already
// have truncated a file.
void note_spawned_writers(const posix_spawn_file_actions_t* actions, const NewFiles& files);

}  // namespace cube::shim
