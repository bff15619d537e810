#include "bench/calls/micro/team.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <stdexcept>

namespace cube::bench {
namespace {

constexpr int k_most_processes = 64;
constexpr char k_prepare = 'p', k_pass = 'r', k_digest = 'd', k_done = '.';

std::uint64_t clock_ns(clockid_t id) {
  timespec t{};
  clock_gettime(id, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000ULL +
         static_cast<std::uint64_t>(t.tv_nsec);
}

// Reads in name order. The passes use another order, so that they do not benefit from the order in
// which the cache was filled.
std::uint64_t digest_of(Reader& reader, const FileSet& set) {
  std::uint64_t sum = 0;
  for (std::uint32_t i = 0; i < set.count(); ++i) {
    const auto bytes = reader.read(i);
    sum += XXH3_64bits_withSeed(bytes.data(), bytes.size(), i);
  }
  return sum;
}

bool is_of_memory(ReaderKind kind) {
  return kind == ReaderKind::copy || kind == ReaderKind::copy_16 || kind == ReaderKind::ideal;
}

}  // namespace

struct Team::Shared {
  std::uint64_t begin_ns, end_ns, cpu_ns, digest;
  char padding[32];
};

Team::Team(const FileSet& set, const TeamOptions& options) : set_(set), options_(options) {
  if (options.processes < 1 || options.processes > k_most_processes)
    throw std::runtime_error("1 to 64 processes");
  if (is_of_memory(options.reader)) arenas_.memory = std::make_unique<Arena>(set);
  if (options.reader == ReaderKind::direct)
    arenas_.disk = std::make_unique<DiskArena>(set, options.arena);
  void* const at = ::mmap(nullptr, sizeof(Shared) * k_most_processes, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) throw std::runtime_error("mmap failed");
  shared_ = static_cast<Shared*>(at);
  for (int i = 0; i < options.processes; ++i) start(i);
  tell(k_prepare);
}

void Team::start(int number) {
  int commands[2], answers[2];
  if (::pipe(commands) != 0 || ::pipe(answers) != 0) throw std::runtime_error("pipe failed");
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  if (pid < 0) throw std::runtime_error("fork failed");
  if (pid == 0) {
    // Closes the inherited pipes of earlier members: otherwise these would not see the end of their
    // commands.
    for (const Member& member : members_) {
      ::close(member.commands);
      ::close(member.answers);
    }
    ::close(commands[1]);
    ::close(answers[0]);
    serve(number, commands[0], answers[1]);
  }
  ::close(commands[0]);
  ::close(answers[1]);
  members_.push_back({pid, commands[1], answers[0]});
}

void Team::serve(int number, int commands, int answers) {
  try {
    const auto reader = make_reader(options_.reader, set_, arenas_);
    const auto order = set_.shuffled(options_.seed + static_cast<std::uint64_t>(number) * 7919);
    Shared& mine = shared_[number];
    char command = 0;
    while (::read(commands, &command, 1) == 1) {
      if (command == k_prepare) {
        if (!options_.filler.empty()) {
          const FileSet filler = FileSet::list(options_.filler, 0);
          digest_of(*make_reader(ReaderKind::posix, filler, {}), filler);
        }
        if (!options_.cold) mine.digest = digest_of(*reader, set_);
      } else if (command == k_pass) {
        const std::uint64_t cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
        mine.begin_ns = clock_ns(CLOCK_MONOTONIC);
        for (int loop = 0; loop < options_.loops; ++loop) {
          for (const std::uint32_t index : order) reader->read(index);
        }
        mine.end_ns = clock_ns(CLOCK_MONOTONIC);
        mine.cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu;
      } else if (options_.cold) {
        mine.digest = digest_of(*reader, set_);
      }
      if (::write(answers, &k_done, 1) != 1) break;
    }
    std::exit(0);
  } catch (const std::exception& error) {
    fmt::print(stderr, "cubeshim_bench: {}\n", error.what());
    std::exit(1);
  }
}

void Team::tell(char command) {
  for (const Member& member : members_) {
    if (::write(member.commands, &command, 1) != 1)
      throw std::runtime_error("a reading process has ended");
  }
  for (const Member& member : members_) {
    char answer = 0;
    if (::read(member.answers, &answer, 1) != 1)
      throw std::runtime_error("a reading process has ended");
  }
}

Pass Team::run() {
  tell(k_pass);
  Pass pass;
  std::uint64_t begin = ~0ULL, end = 0;
  for (int i = 0; i < options_.processes; ++i) {
    begin = std::min(begin, shared_[i].begin_ns);
    end = std::max(end, shared_[i].end_ns);
    pass.cpu_ns += shared_[i].cpu_ns;
  }
  pass.wall_ns = end - begin;
  return pass;
}

std::string Team::digest() {
  tell(k_digest);
  for (int i = 1; i < options_.processes; ++i) {
    if (shared_[i].digest != shared_[0].digest)
      throw std::runtime_error("two processes have read different bytes");
  }
  return fmt::format("{:016x}", shared_[0].digest);
}

Team::~Team() {
  for (const Member& member : members_) {
    ::close(member.commands);
    ::close(member.answers);
    ::waitpid(member.pid, nullptr, 0);
  }
  if (shared_ != nullptr) ::munmap(shared_, sizeof(Shared) * k_most_processes);
}

}  // namespace cube::bench
