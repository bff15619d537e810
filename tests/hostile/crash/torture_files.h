// The data set of the torture. The bytes of a file follow from its number and generation. All
// processes map a board, on which the writer notes a file's generation before and after each
// change.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>

namespace cube::torture {

inline constexpr int k_files = 700, k_packed = 100, k_workers = 8;
// The row of the process that reads each file one time after the round.
inline constexpr int k_second_job = k_workers + 1;

enum class Phase : std::uint32_t { idle, opening, reading, mapped, stdio, forked, closing, count };
inline constexpr const char* k_phase_names[] = {"between files", "opening", "reading", "mapped",
                                                "stdio",         "forked",  "closing"};

struct WorkerRow {
  std::atomic<std::uint64_t> beat_ns;  // time of its last progress
  std::atomic<std::uint32_t> phase;
  std::atomic<std::uint32_t> file;
  std::atomic<std::uint64_t> pack_floor;  // the pack's generation when the process was started
};

struct Board {
  // Twice the generation of a file; odd while the file is being changed.
  std::atomic<std::uint64_t> versions[k_files];
  WorkerRow workers[k_workers + 2];
  std::atomic<std::uint64_t> pack_version;  // twice its generation; odd while it is being replaced
  std::atomic<std::uint64_t> reads, packed_reads, raced, bytes, wrong, changes, errors, leaked_fds;
  std::atomic<bool> stop, has_packs;
  char complaint[400];  // the text of the first process that found an error
};

inline Board* map_board(int fd) {
  void* const at = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return at == MAP_FAILED ? nullptr : static_cast<Board*>(at);
}

inline std::string file_name(int number) { return "f" + std::to_string(number); }
// Files that are rewritten in place can be seen half-written; all others are replaced as a whole,
// by rename.
inline bool is_rewritten(int number) { return number % 4 == 0; }

inline std::size_t size_of(int number, std::uint64_t generation) {
  if (number % 100 == 50) return 2'200'000 + generation % 1000;
  return 32 + (static_cast<std::size_t>(number) * 7919 + generation * 331) % 190'000;
}

inline std::string content_of(int number, std::uint64_t generation) {
  std::string text(size_of(number, generation) / 8 * 8, '\0');
  std::uint64_t x =
      (static_cast<std::uint64_t>(number) << 40 ^ generation) * 0x9e3779b97f4a7c15ULL + 1;
  for (std::size_t i = 16; i < text.size(); i += 8) {
    x = x * 6364136223846793005ULL + 1442695040888963407ULL;
    std::memcpy(text.data() + i, &x, 8);
  }
  const std::uint64_t head[2] = {static_cast<std::uint64_t>(number), generation};
  std::memcpy(text.data(), head, sizeof head);
  return text;
}

// Returns true if the file is whole and of one generation, and sets `generation`.
inline bool is_whole(int number, const std::string& bytes, std::uint64_t& generation) {
  std::uint64_t head[2] = {};
  if (bytes.size() < sizeof head) return false;
  std::memcpy(head, bytes.data(), sizeof head);
  generation = head[1];
  return head[0] == static_cast<std::uint64_t>(number) &&
         bytes.size() == size_of(number, generation) / 8 * 8 &&
         bytes == content_of(number, generation);
}

}  // namespace cube::torture
