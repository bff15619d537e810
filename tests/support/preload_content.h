// The data set of the preload tests: files f0, f1 ... The size and bytes of a file follow from its
// number, so that the driver, the helper programs and Python can all check them.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <string>

namespace cube::preload {

inline constexpr std::size_t k_sizes[] = {0, 1, 100, 4096, 5000, 32768, 65537, 200000, 300, 700};
inline constexpr int k_files = 10;

inline std::size_t size_of(int number) { return k_sizes[number % k_files]; }
inline char byte_of(int number, std::size_t i) {
  return static_cast<char>((i * 31 + number * 7 + (i >> 8)) & 255);
}
inline std::string content_of(int number) {
  std::string content(size_of(number), '\0');
  for (std::size_t i = 0; i < content.size(); ++i) content[i] = byte_of(number, i);
  return content;
}
// "/some/where/f12" -> 12
inline int number_of(const std::string& path) {
  return std::atoi(path.c_str() + path.rfind('f') + 1);
}

}  // namespace cube::preload
