// Contents in which every word identifies the write that stored it. A word has eight bytes, which
// hold the tag of the write and the word's place in the file. A reader reports runs of words with
// the same tag, so a mixture of two versions has more runs than either version.
#pragma once

#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace cube::mutator {

struct Run {
  std::uint32_t tag = 0;
  std::uint32_t words = 0;
  bool operator==(const Run&) const = default;
};
using Runs = std::vector<Run>;

inline constexpr std::uint32_t k_hole = 0;             // zero bytes
inline constexpr std::uint32_t k_alien = 0xffff'ffff;  // bytes that the mutator has not written
                                                       // there
inline constexpr std::size_t k_word = sizeof(std::uint64_t);

// The clock of all processes. An answer is judged by the times of the question and of the answer.
inline std::int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

inline std::uint64_t words_in(const Runs& runs) {
  std::uint64_t words = 0;
  for (const Run& run : runs) words += run.words;
  return words;
}

// Joins equal neighbours and drops empty runs, so that equal contents have equal runs.
inline void append_run(Runs& runs, Run run) {
  if (run.words == 0) return;
  if (!runs.empty() && runs.back().tag == run.tag) {
    runs.back().words += run.words;
  } else {
    runs.push_back(run);
  }
}

// The words [from, from + words) of a content, or fewer at its end.
inline Runs cut(const Runs& runs, std::uint64_t from, std::uint64_t words) {
  Runs part;
  std::uint64_t at = 0;
  for (const Run& run : runs) {
    const std::uint64_t begin = std::max(at, from), end = std::min(at + run.words, from + words);
    if (begin < end) append_run(part, {run.tag, static_cast<std::uint32_t>(end - begin)});
    at += run.words;
  }
  return part;
}

// `bytes` lie at the offset `first_word * k_word` of the file.
inline Runs decode(const char* bytes, std::size_t size, std::uint64_t first_word) {
  Runs runs;
  for (std::size_t i = 0; i < size / k_word; ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + i * k_word, k_word);
    const bool is_in_place = (word & 0xffff'ffff) == first_word + i;
    append_run(runs, {word == 0     ? k_hole
                      : is_in_place ? static_cast<std::uint32_t>(word >> 32)
                                    : k_alien,
                      1});
  }
  if (size % k_word != 0) append_run(runs, {k_alien, 1});
  return runs;
}

inline std::string encode(const Runs& runs, std::uint64_t first_word) {
  std::string bytes;
  std::uint64_t at = first_word;
  for (const Run& run : runs) {
    for (std::uint32_t i = 0; i < run.words; ++i, ++at) {
      const std::uint64_t word = run.tag == k_hole ? 0 : std::uint64_t{run.tag} << 32 | at;
      bytes.append(reinterpret_cast<const char*>(&word), k_word);
    }
  }
  return bytes;
}

// The fields of a stat that do not depend on the mount.
struct Attributes {
  std::uint64_t inode = 0, size = 0;
  std::uint32_t mode = 0;
  std::uint64_t links = 0;
  std::int64_t modified_ns = 0, changed_ns = 0;
  bool operator==(const Attributes&) const = default;
};

}  // namespace cube::mutator
