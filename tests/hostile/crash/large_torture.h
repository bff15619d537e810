// Shared by large_torture and its workers: the board, and the files. Each word of a file encodes
// file, generation and place.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

namespace cube::large_torture {

// The changes that a file undergoes. A process with the library makes each change, unless the kind
// says otherwise.
enum class Kind : std::uint8_t {
  constant,
  replaced,
  replaced_outside,
  rewritten,
  appended,
  truncated
};
struct File {
  Kind kind;
  std::uint64_t size;
};
constexpr std::uint64_t k_mb = 1'000'000;
constexpr File k_files[] = {
    {Kind::constant, 60 * k_mb + 1},     {Kind::constant, 21 * k_mb},
    {Kind::replaced, 33 * k_mb + 777},   {Kind::replaced, 24 * k_mb},
    {Kind::rewritten, 40 * k_mb},        {Kind::replaced_outside, 29 * k_mb + 5},
    {Kind::appended, 20 * k_mb + 4'001}, {Kind::truncated, 22 * k_mb + 9}};
constexpr int k_file_count = static_cast<int>(std::size(k_files));
constexpr std::uint64_t k_most_bytes = 100 * k_mb, k_area = 64 << 10;
constexpr int k_readers = 6, k_writer = k_readers, k_outside_writer = k_readers + 1,
              k_processes = k_readers + 2;
constexpr int k_small_files = 300;

// Readers find the size of a replaced file by fstat.
inline std::uint64_t size_of(int file, std::uint64_t generation) {
  const bool varies =
      k_files[file].kind == Kind::replaced || k_files[file].kind == Kind::replaced_outside;
  return k_files[file].size + (varies ? generation % 7 * 12'288 + generation % 11 : 0);
}

// A word can be decoded to its file, generation, and place in the file.
constexpr std::uint64_t k_factor = 0x9e3779b97f4a7c15ULL;
constexpr std::uint64_t inverse_of(std::uint64_t factor) {
  std::uint64_t x = factor;
  for (int i = 0; i < 6; ++i) x *= 2 - factor * x;
  return x;
}
constexpr std::uint64_t k_inverse = inverse_of(k_factor);
static_assert(k_factor * k_inverse == 1);
inline std::uint64_t word_at(int file, std::uint64_t generation, std::uint64_t index) {
  return (generation << 40 | static_cast<std::uint64_t>(file + 1) << 34 | index) * k_factor;
}
inline void fill_words(std::vector<std::uint64_t>& words, int file, std::uint64_t generation,
                       std::uint64_t at) {
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = word_at(file, generation, at / 8 + i);
}
inline std::string name_of(int file) { return "large" + std::to_string(file); }
inline std::string small_name(int file) { return "small" + std::to_string(file); }

struct Board {
  std::atomic<bool> stop;
  std::atomic<std::uint64_t> reads, bytes, maps, changes, jumps, wrong, errors;
  std::atomic<std::uint64_t> beat_ns[k_processes];
  std::atomic<std::uint32_t> step[k_processes];
  // Twice the generation; odd while that generation is being written. A rewritten file has such a
  // value for each area.
  std::atomic<std::uint64_t> versions[k_file_count];
  std::atomic<std::uint64_t> areas[k_most_bytes / k_area + 1];
  std::atomic<std::uint64_t> length;  // the minimum length of the appended file
};

inline Board* map_board(int fd) {
  void* const at = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return at == MAP_FAILED ? nullptr : static_cast<Board*>(at);
}

// Writes the words in [at, at + bytes) of a generation. Writes in steps, so that readers see
// half-written files.
inline bool write_words(int fd, int file, std::uint64_t generation, std::uint64_t at,
                        std::uint64_t bytes) {
  std::vector<std::uint64_t> words(128 << 10);
  for (std::uint64_t done = 0; done < bytes;) {
    const std::uint64_t n = std::min<std::uint64_t>(bytes - done, words.size() * 8);
    words.resize((n + 7) / 8);
    fill_words(words, file, generation, at + done);
    if (pwrite(fd, words.data(), n, static_cast<off_t>(at + done)) != static_cast<ssize_t>(n))
      return false;
    done += n;
  }
  return true;
}
inline bool write_file(const std::string& path, int file, std::uint64_t generation) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return false;
  const bool whole = write_words(fd, file, generation, 0, size_of(file, generation));
  return close(fd) == 0 && whole;
}

}  // namespace cube::large_torture
