// The process that plays sequences, one after another, as the driver's environment has made it:
// plain, or with the library.
#pragma once

#include <cstdint>

namespace cube::differ {

inline constexpr const char* k_worker_flag = "--worker";

// Before a task's text: "root\noutside\nsource\nstart\n" and the sequence.
struct Task {
  std::uint32_t is_warm = 0;  // every file of the tree is opened once before
  std::uint32_t length = 0;
};

// Does what comes through k_command_fd until that ends. See actor.h for the other numbers.
int run_worker();

}  // namespace cube::differ
