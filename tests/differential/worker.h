// The process that plays sequences one after another in the driver's environment: plain, or with
// the library.
#pragma once

#include <cstdint>

namespace cube::differ {

inline constexpr const char* k_worker_flag = "--worker";

// Precedes a task's text: "root\noutside\nsource\nstart\n" and the sequence.
struct Task {
  std::uint32_t is_warm = 0;  // true: every file of the tree is opened once before the sequence
  std::uint32_t length = 0;
};

// Serves k_command_fd until it ends. See actor.h for the other fds.
int run_worker();

}  // namespace cube::differ
