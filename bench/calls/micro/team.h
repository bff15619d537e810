// Processes that read a set, each in an order of its own, at the same time, pass by pass.
// They are forked before the first file is read, so each is a process of its own to whatever is
// preloaded. Thread safety: of one thread. A team that has failed has said why on stderr, and every
// pass throws.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/calls/micro/file_set.h"
#include "bench/calls/micro/readers.h"

namespace cube::bench {

struct TeamOptions {
  ReaderKind reader = ReaderKind::posix;
  int processes = 1;
  std::uint64_t seed = 1;
  int loops = 1;       // times that a pass reads the set
  bool cold = false;   // the first pass is the first look at the files; the digest is taken after
  std::string arena;   // of ReaderKind::direct: where the files lie, or are to
  std::string filler;  // a directory that is read once before all else (to fill a region)
};

struct Pass {
  std::uint64_t wall_ns = 0;  // from the first to begin to the last to end
  std::uint64_t cpu_ns = 0;   // of all processes
};

class Team {
 public:
  Team(const FileSet& set, const TeamOptions& options);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  // All files of the set, by every process. The first call also waits until all are ready.
  Pass run();
  // The hash of all bytes of the set as the processes have seen them; throws if they differ. 16 hex
  // digits.
  std::string digest();

 private:
  struct Shared;  // what a process reports
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
