// The process that plays sequences one after another in the environment that the driver has set,
// plain or with the library.
#pragma once

#include <cstdint>

namespace cube::differ {

inline constexpr const char* k_worker_flag = "--worker";

// Precedes a task's text: "root\noutside\nsource\nstart\n" and the sequence.
struct Task {
  std::uint32_t is_warm = 0;  // true: each file is opened before the sequence
  std::uint32_t length = 0;
};

// Serves tasks from k_command_fd until its end. See actor.h for the other fds.
int run_worker();

}  // namespace cube::differ
