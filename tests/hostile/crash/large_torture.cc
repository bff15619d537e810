// Readers check every byte of files of 20 to 60 MB. The files are served in blocks from a region
// that is far too small for them. Some readers are killed and replaced, others are stopped. Two
// writers replace, rewrite, append to and truncate files, one through the library, the other
// bypassing the library.
//
//   large_torture [--seconds N] [--round N] [--seed N]
//
// The program runs in rounds with blocks of 4 KiB, 64 KiB and 1 MiB in turn. At the end of a round,
// no slot, pin, lease or unfinished place may be left in the region.
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#include "cache/base/clock.h"
#include "cache/region/lanes.h"
#include "tests/hostile/crash/large_torture.h"
#include "tests/support/mutant.h"
#include "tests/support/survivor.h"
#include "tests/support/temp_dir.h"

namespace cube::large_torture {
namespace {

constexpr std::uint64_t k_hang_ns = 60'000'000'000;
constexpr long k_harm_every_ns = 50'000'000;
constexpr const char* k_blocks[] = {"4K", "64K", "1M"};
constexpr std::uint64_t k_regions[] = {48 << 20, 96 << 20, 256 << 20};

std::string library() {
  const char* const other = getenv("PRELOAD_LIBRARY");
  return other != nullptr ? other : CUBESHIM_LIBRARY;
}

class Torture {
 public:
  explicit Torture(unsigned seed) : random_(seed) {
    board_fd_ = memfd_create("board", MFD_CLOEXEC);
    if (board_fd_ < 0 || ftruncate(board_fd_, sizeof(Board)) != 0) std::abort();
    board_ = map_board(board_fd_);
    for (int i = 0; i < k_file_count; ++i) {
      if (!write_file(dir_ / name_of(i), i, 0)) std::abort();
    }
    board_->length = size_of(6, 0);
    static_assert(k_files[6].kind == Kind::appended);
    for (int i = 0; i < k_small_files; ++i)
      dir_.write(small_name(i), std::string(20'000 + static_cast<std::size_t>(i),
                                            static_cast<char>('a' + i % 26)));
  }
  ~Torture() {
    for (int row = 0; row < k_processes; ++row) kill(row);
  }
  Torture(const Torture&) = delete;
  Torture& operator=(const Torture&) = delete;

  bool run(std::uint64_t seconds, std::uint64_t round_seconds) {
    const std::uint64_t end = base::monotonic_ns() + seconds * 1'000'000'000;
    while (base::monotonic_ns() < end && is_clean())
      round(std::min(end, base::monotonic_ns() + round_seconds * 1'000'000'000));
    print();
    return is_clean() && kills_ > 0 && board_->reads > 0 && board_->maps > 0 &&
           board_->changes > 0 && chunks_ > 0;
  }

 private:
  bool is_clean() const {
    return board_->wrong == 0 && board_->errors == 0 && faults_ == 0 && counts_.is_clean();
  }
  void complain(const char* what, long number) {
    std::printf("%s (%ld)\n", what, number);
    ++faults_;
  }

  void start(int row) {
    std::vector<std::string> variables = {"CUBESHIM_PREFIXES=" + dir_.path(),
                                          "CUBESHIM_NAME=" + name_,
                                          "CUBESHIM_RAM=" + std::to_string(ram_),
                                          std::string("CUBESHIM_BLOCK=") + block_,
                                          "CUBESHIM_MAX_FILE=1M",
                                          "CUBESHIM_STATS=off",
                                          "PATH=/usr/bin:/bin"};
    if (row != k_outside_writer) variables.push_back("LD_PRELOAD=" + library());
    tests::keep_mutant(variables);
    std::vector<char*> environment;
    for (auto& v : variables) environment.push_back(v.data());
    environment.push_back(nullptr);
    const std::string row_text = std::to_string(row),
                      seed_text = std::to_string(random_() % 1'000'000 + 1);
    const char* const arguments[] = {LARGE_TORTURE_WORKER, dir_.path().c_str(), row_text.c_str(),
                                     seed_text.c_str(), nullptr};
    board_->beat_ns[row] = base::monotonic_ns();
    stopped_until_[row] = 0;
    const pid_t parent = getpid();
    pids_[row] = fork();
    if (pids_[row] != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(99);
    if (board_fd_ == 3) fcntl(3, F_SETFD, 0);
    if (board_fd_ != 3) dup2(board_fd_, 3);
    execve(arguments[0], const_cast<char* const*>(arguments), environment.data());
    _exit(127);
  }
  // Exit status, or -signal.
  int wait(int row) {
    int status = 0;
    if (pids_[row] <= 0) return 0;
    waitpid(std::exchange(pids_[row], -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  void kill(int row) {
    if (pids_[row] > 0) ::kill(pids_[row], SIGKILL);
    (void)wait(row);
  }
  bool has_ended(int row) const {
    siginfo_t info{};
    return waitid(P_PID, static_cast<id_t>(pids_[row]), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid != 0;
  }

  void round(std::uint64_t end) {
    block_ = k_blocks[rounds_ % std::size(k_blocks)];
    ram_ = k_regions[rounds_ / std::size(k_blocks) % std::size(k_regions)];
    ++rounds_;
    tests::TestRegion region(ram_, "/dev/shm", name_);
    board_->stop = false;
    for (int row = 0; row < k_processes; ++row) start(row);
    while (base::monotonic_ns() < end && is_clean()) {
      const timespec pause{0, k_harm_every_ns};
      nanosleep(&pause, nullptr);  // the pace of the kills
      harm();
      look(region.path());
    }
    board_->stop = true;
    for (int row = 0; row < k_processes; ++row) wait_for_end(row);
    check_what_is_left(*region);
  }

  // Writers are not killed, because the content that a killed writer leaves is unknown.
  void harm() {
    const std::uint64_t now = base::monotonic_ns();
    for (int row = 0; row < k_readers; ++row) {
      if (stopped_until_[row] == 0 || now < stopped_until_[row]) continue;
      ::kill(pids_[row], SIGCONT);
      stopped_until_[row] = 0;
      board_->beat_ns[row] = now;
    }
    const int row = static_cast<int>(random_() % k_readers);
    if (random_() % 6 == 0 && stopped_until_[row] == 0) {
      ::kill(pids_[row], SIGSTOP);
      stopped_until_[row] = now + random_() % 2'500'000'000;
      ++stops_;
      return;
    }
    // Most readers must live for a while, so that they read enough.
    if (random_() % 3 != 0 || has_ended(row)) return;
    kill(row);
    ++kills_;
    start(row);
  }

  void look(const std::string& region_path) {
    const std::uint64_t now = base::monotonic_ns();
    for (int row = 0; row < k_processes; ++row) {
      if (has_ended(row)) {
        complain("a process has ended by itself", wait(row));
        start(row);
      }
      const std::uint64_t beat = board_->beat_ns[row];
      if (stopped_until_[row] == 0 && now > beat && now - beat > k_hang_ns)
        complain("a process hangs at way", board_->step[row]);
    }
    struct ::stat st {};
    if (stat(region_path.c_str(), &st) == 0 &&
        static_cast<std::uint64_t>(st.st_blocks) * 512 > ram_)
      complain("the region takes more than was allowed, in KiB", st.st_blocks / 2);
  }

  void wait_for_end(int row) {
    if (stopped_until_[row] != 0) ::kill(pids_[row], SIGCONT);
    const std::uint64_t deadline = base::monotonic_ns() + k_hang_ns;
    while (!has_ended(row)) {
      if (base::monotonic_ns() > deadline) {
        complain("a process does not end, at way", board_->step[row]);
        return kill(row);
      }
      const timespec pause{0, 1'000'000};
      nanosleep(&pause, nullptr);
    }
    if (const int status = wait(row); status != 0) complain("a process ended with", status);
  }

  void check_what_is_left(cache::Region& region) {
    tests::Survivor survivor(region);
    survivor.check_tables(counts_);
    const auto& layout = region.layout();
    for (std::uint32_t p = 0; p < layout.process_slots; ++p) {
      if (p != region.own_slot() && region.process_slot(p).used != 0)
        complain("a slot of a dead process is left", p);
      if (cache::pins_of(region, p) != 0) complain("a claim is left by process", p);
    }
    for (std::uint32_t place = 0; place < layout.chunk_count(); ++place) {
      const auto word = cache::SegmentWord::of_word(region.chunk_row(place).word);
      if (word.state == cache::SegmentState::sealed) ++chunks_;
      if (word.state != cache::SegmentState::free && word.state != cache::SegmentState::sealed)
        complain("a place in the making is left, in state", static_cast<long>(word.state));
    }
  }

  void print() const {
    const auto n = [](const auto& value) { return static_cast<unsigned long long>(value); };
    std::printf(
        "large files: rounds %llu, chunks %llu, kills %llu, stops %llu, jumps %llu, reads %llu, "
        "mappings %llu, %llu MB, "
        "changes %llu\nwrong %llu, failed changes %llu, other faults %llu, leaked pins %d, leaked "
        "leases %d, hangs %d\n",
        n(rounds_), n(chunks_), n(kills_), n(stops_), n(board_->jumps), n(board_->reads),
        n(board_->maps), n(board_->bytes / k_mb), n(board_->changes), n(board_->wrong),
        n(board_->errors), n(faults_), counts_.leaked_pins, counts_.leaked_leases, counts_.hangs);
  }

  std::mt19937 random_;
  const tests::TempDir dir_;
  const std::string name_ = tests::unique_name();
  int board_fd_ = -1;
  Board* board_ = nullptr;
  const char* block_ = "";
  std::uint64_t ram_ = 0;
  std::uint64_t rounds_ = 0, kills_ = 0, stops_ = 0, faults_ = 0, chunks_ = 0;
  tests::KillCounts counts_;
  pid_t pids_[k_processes] = {};
  std::uint64_t stopped_until_[k_processes] = {};
};

}  // namespace
}  // namespace cube::large_torture

int main(int count, char** arguments) {
  std::uint64_t seconds = 10, round = 20;
  unsigned seed = std::random_device{}();
  for (int i = 1; i + 1 < count; i += 2) {
    const auto is = [&](const char* name) { return std::strcmp(arguments[i], name) == 0; };
    const std::uint64_t value = std::strtoull(arguments[i + 1], nullptr, 10);
    if (is("--seconds")) seconds = value;
    if (is("--round")) round = value;
    if (is("--seed")) seed = static_cast<unsigned>(value);
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  std::printf("seed %u\n", seed);
  cube::large_torture::Torture torture(seed);
  return torture.run(seconds, round) ? 0 : 1;
}
