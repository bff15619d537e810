// The program that an operation starts. It reads from an inherited fd and prints the result.
#pragma once

namespace cube::differ {

inline constexpr const char* k_reader_flag = "--read-inherited";
int run_reader(int fd, unsigned long length);

}  // namespace cube::differ
