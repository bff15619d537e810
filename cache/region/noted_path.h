// A path in the region, for the report of a job. Only the first path is noted. Thread safety: any
// thread and signal handler of any process may use it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace cube::cache {

// All zeros: no path has been noted.
template <std::size_t Bytes>
struct NotedPath {
  // 0: there is no path; 1: the path is being written; 2: the path is present.
  std::atomic<std::uint32_t> state;
  char text[Bytes - sizeof(std::uint32_t)];
};

// Writes the path and a terminating zero. Keeps only the end of a long path, because the end says
// more than the beginning.
void write_noted_path(std::span<char> text, std::string_view path);

// Notes the path if no path has been noted yet.
template <std::size_t Bytes>
void note_path(NotedPath<Bytes>& noted, std::string_view path) {
  std::uint32_t none = 0;
  if (noted.state.load(std::memory_order_relaxed) != 0 ||
      !noted.state.compare_exchange_strong(none, 1, std::memory_order_relaxed))
    return;
  write_noted_path(noted.text, path);
  // Pairs with the acquire in copy_noted_path.
  noted.state.store(2, std::memory_order_release);
}

// Copies the path to `text`. Replaces all characters except printable ASCII by '?', because another
// process has written the path. If there is no path, the text is empty.
template <std::size_t Bytes>
void copy_noted_path(const NotedPath<Bytes>& noted, std::span<char> text) {
  text[0] = '\0';
  if (noted.state.load(std::memory_order_acquire) != 2) return;
  std::size_t n = 0;
  for (; n + 1 < text.size() && n < sizeof noted.text && noted.text[n] != '\0'; ++n)
    text[n] = noted.text[n] >= ' ' && noted.text[n] <= '~' ? noted.text[n] : '?';
  text[n] = '\0';
}

}  // namespace cube::cache
