// A team of processes that read the same set of files at the same time. Each process reads in an
// order of its own, which is the same in every pass. A pass ends when all processes have read the
// set. The processes are forked before the first file is read, so a preloaded library handles each
// as a separate process. Thread safety: one thread. If a team fails, it reports the reason on
// stderr, and every later pass throws.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/calls/micro/file_set.h"
#include "bench/calls/micro/read_methods.h"

namespace cube::bench {

struct TeamOptions {
  ReaderKind reader = ReaderKind::posix;
  int processes = 1;
  std::uint64_t seed = 1;
  int loops = 1;  // how often a pass reads the set
  // the first pass is the first access to the files; the digest is taken afterwards
  bool cold = false;
  std::string arena;   // for ReaderKind::direct: the path of the arena
  std::string filler;  // a directory that is read at the beginning, to fill a region
};

struct Pass {
  std::uint64_t wall_ns = 0;  // from the start of the first process to the end of the last
  std::uint64_t cpu_ns = 0;   // of all processes
};

class Team {
 public:
  Team(const FileSet& set, const TeamOptions& options);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  // Makes every process read all files of the set. The first call also waits until all processes
  // are ready.
  Pass run();
  // Returns the hash, in 16 hex digits, of all bytes of the set as the processes have read them.
  // Throws if the processes have read different bytes.
  std::string digest();

 private:
  struct Shared;  // the report of each process
  struct Member {
    pid_t pid = -1;
    int commands = -1;  // we write
    int answers = -1;   // we read
  };
  void start(int number);
  [[noreturn]] void serve(int number, int commands, int answers);
  void tell(char command);

  const FileSet& set_;
  TeamOptions options_;
  Arenas arenas_;
  Shared* shared_ = nullptr;
  std::vector<Member> members_;
};

}  // namespace cube::bench
