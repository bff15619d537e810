// A file that a worker of large_torture has open. Checks each byte that the worker reads. Thread
// safety: an object belongs to one thread.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <iterator>
#include <random>
#include <string>
#include <utility>

#include "tests/hostile/crash/large_torture.h"

namespace cube::large_torture {

inline Board* g_board;
inline std::string g_directory;
inline int g_row;
inline thread_local const char* t_way = "";

using Random = std::minstd_rand;
inline std::uint64_t below(Random& random, std::uint64_t n) {
  return (static_cast<std::uint64_t>(random()) << 31 ^ random()) % n;
}

inline void beat(std::uint32_t step) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  g_board->beat_ns[g_row] = static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
                            static_cast<std::uint64_t>(now.tv_nsec);
  g_board->step[g_row] = step;
}

inline void wrong(int file, const char* what, std::uint64_t at, std::uint64_t a, std::uint64_t b,
                  std::uint64_t c) {
  if (g_board->wrong.fetch_add(1) > 20) return;
  char text[300];
  const int n = std::snprintf(
      text, sizeof text, "WRONG: process %d, %s of file %d at %llu: %s (%llu, %llu, %llu)\n", g_row,
      t_way, file, static_cast<unsigned long long>(at), what, static_cast<unsigned long long>(a),
      static_cast<unsigned long long>(b), static_cast<unsigned long long>(c));
  [[maybe_unused]] const ssize_t written = write(1, text, static_cast<std::size_t>(n));
}

// The bytes that may be seen: those of the generations from `least` to `most`. If all bytes must be
// of the same generation, `one` points to it, and is k_any at first.
constexpr std::uint64_t k_any = UINT64_MAX;
struct Allowed {
  int file;
  std::uint64_t least, most;
  std::uint64_t* one = nullptr;
};

// During a write, a read may return the old first bytes of a word and its new last bytes, as in the
// kernel.
inline bool is_torn(const Allowed& allowed, std::uint64_t word, std::uint64_t index) {
  if (allowed.one != nullptr || allowed.most - allowed.least > 8) return false;
  for (std::uint64_t a = allowed.least; a <= allowed.most; ++a) {
    for (std::uint64_t b = allowed.least; b <= allowed.most; ++b) {
      for (int bits = 8; bits < 64; bits += 8) {
        const std::uint64_t low = (std::uint64_t{1} << bits) - 1;
        if (word ==
            ((word_at(allowed.file, a, index) & low) | (word_at(allowed.file, b, index) & ~low)))
          return true;
      }
    }
  }
  return false;
}

inline bool check(const Allowed& allowed, const void* bytes, std::uint64_t n, std::uint64_t at) {
  const std::uint64_t skip = (8 - at % 8) % 8;
  for (std::uint64_t i = skip; i + 8 <= n; i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, static_cast<const char*>(bytes) + i, 8);
    const std::uint64_t told = word * k_inverse, generation = told >> 40,
                        file = (told >> 34 & 63) - 1, index = told & ((1ULL << 34) - 1);
    const bool is_right = file == static_cast<std::uint64_t>(allowed.file) &&
                          index == (at + i) / 8 && generation >= allowed.least &&
                          generation <= allowed.most;
    if (!is_right && is_torn(allowed, word, (at + i) / 8)) continue;
    if (file != static_cast<std::uint64_t>(allowed.file) || index != (at + i) / 8) {
      wrong(allowed.file, "bytes of another place", at + i, file, index * 8, generation);
      return false;
    }
    if (generation < allowed.least || generation > allowed.most) {
      wrong(allowed.file, "a generation of another time", at + i, generation, allowed.least,
            allowed.most);
      return false;
    }
    if (allowed.one == nullptr) continue;
    if (*allowed.one == k_any) *allowed.one = generation;
    if (generation != *allowed.one) {
      wrong(allowed.file, "two generations in one", at + i, generation, *allowed.one, 0);
      return false;
    }
  }
  g_board->bytes.fetch_add(n, std::memory_order_relaxed);
  return true;
}

// A file that is open for reading, and the bytes that may be read from it.
class Opened {
 public:
  Opened(int file, int flags) : file_(file) {
    const std::uint64_t before = g_board->versions[file].load();
    const std::uint64_t length = g_board->length.load();
    fd_ = open((g_directory + "/" + name_of(file)).c_str(), O_RDONLY | flags);
    struct stat st {};
    if (fd_ < 0 || fstat(fd_, &st) != 0) {
      wrong(file, "it cannot be opened", 0, static_cast<std::uint64_t>(errno), 0, 0);
      return;
    }
    least_ = before / 2;
    most_ = (g_board->versions[file].load() + 1) / 2;
    size_ = static_cast<std::uint64_t>(st.st_size);
    if (kind() == Kind::appended && size_ < length)
      wrong(file, "it is too short", 0, size_, length, 0);
  }
  ~Opened() {
    if (fd_ >= 0) close(fd_);
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  explicit operator bool() const { return fd_ >= 0; }
  Kind kind() const { return k_files[file_].kind; }
  bool is_steady() const {
    return kind() != Kind::rewritten && kind() != Kind::truncated && kind() != Kind::appended;
  }
  int fd() const { return fd_; }
  int file() const { return file_; }
  std::uint64_t size() const { return size_; }
  int give_up() { return std::exchange(fd_, -1); }

  // Makes a read of [at, at + n) and checks the bytes.
  template <typename Read>
  ssize_t checked(std::uint64_t at, std::uint64_t n, const void* bytes, const Read& read) {
    constexpr std::uint64_t k_most_areas = 64;
    std::uint64_t areas[k_most_areas];
    const std::uint64_t first = at / k_area,
                        last = std::min((at + n) / k_area, first + k_most_areas - 1);
    const std::uint64_t version = g_board->versions[file_].load();
    if (kind() == Kind::rewritten) {
      for (std::uint64_t a = first; a <= last; ++a) areas[a - first] = g_board->areas[a].load();
    }
    const ssize_t got = read();
    if (got < 0) {
      wrong(file_, "an error", at, static_cast<std::uint64_t>(errno), n, 0);
      return got;
    }
    const auto bytes_got = static_cast<std::uint64_t>(got);
    g_board->reads.fetch_add(1, std::memory_order_relaxed);
    if (is_steady() && bytes_got != std::min(n, size_ - std::min(size_, at)))
      wrong(file_, "a short read", at, bytes_got, n, size_);
    switch (kind()) {
      case Kind::rewritten:
        for (std::uint64_t a = first; a <= last; ++a) {
          const std::uint64_t begin = std::max(at, a * k_area),
                              end = std::min(at + bytes_got, (a + 1) * k_area);
          if (begin >= end) continue;
          const Allowed allowed{file_, areas[a - first] / 2, (g_board->areas[a].load() + 1) / 2};
          check(allowed, static_cast<const char*>(bytes) + (begin - at), end - begin, begin);
        }
        break;
      case Kind::truncated:
        check({file_, version / 2, (g_board->versions[file_].load() + 1) / 2}, bytes, bytes_got,
              at);
        break;
      default: check({file_, least_, most_, &one_}, bytes, bytes_got, at);
    }
    return got;
  }
  // A mapping may show any content that the file had at any time since the open.
  bool check_mapped(const void* bytes, std::uint64_t n, std::uint64_t at) {
    if (kind() == Kind::rewritten) return check({file_, 0, UINT64_MAX}, bytes, n, at);
    return check({file_, least_, most_, &one_}, bytes, n, at);
  }

 private:
  int file_;
  int fd_ = -1;
  std::uint64_t size_ = 0, least_ = 0, most_ = 0, one_ = k_any;
};

}  // namespace cube::large_torture
