// Functions that are younger than the oldest libc that the library runs with (glibc 2.17). The
// address of a function is null if libc lacks the function, so each caller checks the address and
// has an alternative. Thread safety: there is nothing to protect.
#pragma once

#include <pthread.h>
#include <spawn.h>

#include <cstring>
#include <ctime>

// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name)
// NOLINTBEGIN(readability-redundant-declaration)
extern "C" {
__attribute__((weak)) int pthread_mutex_clocklock(pthread_mutex_t*, clockid_t,
                                                  const timespec*) noexcept;  // 2.30
__attribute__((weak)) int posix_spawn_file_actions_addchdir_np(posix_spawn_file_actions_t*,
                                                               const char*) noexcept;  // 2.29
__attribute__((weak)) int posix_spawn_file_actions_addfchdir_np(posix_spawn_file_actions_t*,
                                                                int) noexcept;  // 2.29
__attribute__((weak)) const char* strerrordesc_np(int) noexcept;                // 2.32
}
// NOLINTEND(readability-redundant-declaration)
// NOLINTEND(readability-inconsistent-declaration-parameter-name)
