// Eight readers check every byte of a data set that is three times as large as the cache. Every 50
// ms, a reader is killed and replaced. Some readers are stopped for a while. A writer changes files
// through the library.
//
//   torture [--seconds N] [--round N] [--seed N] [--with disk,packs,list]
//
// The program runs in rounds, each with a new region, because nothing is published into a full
// region. At the end of a round, no slot, pin, lease or writer may be left in the region, and all
// of its room must be usable. With a disk, which is kept over the rounds, a second job then reads
// all files, some of them from the disk.
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <random>

#include "cache/base/clock.h"
#include "cache/region/lanes.h"
#include "cache/region/ring.h"
#include "tests/hostile/crash/torture_files.h"
#include "tests/hostile/crash/torture_setup.h"
#include "tests/support/mutant.h"
#include "tests/support/survivor.h"
#include "tests/support/temp_dir.h"

namespace cube::torture {
namespace {

constexpr std::uint64_t k_ram = 24 << 20;
constexpr std::uint64_t k_hang_ns = 60'000'000'000;
constexpr long k_kill_every_ns = 50'000'000;

std::string library() {
  const char* const other = getenv("PRELOAD_LIBRARY");
  return other != nullptr ? other : CUBESHIM_LIBRARY;
}

struct Totals {
  std::uint64_t kills = 0, stops = 0, hangs = 0, rounds = 0, died = 0, too_large = 0, left_over = 0,
                records = 0, disk_hits = 0;
  std::uint64_t kills_in[static_cast<int>(Phase::count)] = {};
};

// The processes, with their pids and their arguments. No process outlives this program.
class Team {
 public:
  Team(std::string directory, std::string name, int board_fd, const Setup& setup)
      : directory_(std::move(directory)), name_(std::move(name)), board_(board_fd), setup_(setup) {}
  ~Team() {
    for (int row = 0; row <= k_second_job; ++row) kill(row);
  }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  void start(int row, unsigned seed) {
    std::vector<std::string> variables = {
        "LD_PRELOAD=" + library(),
        "CUBESHIM_PREFIXES=" + directory_,
        "CUBESHIM_NAME=" + name_,
        "CUBESHIM_RAM=24M",
        row == k_second_job ? "CUBESHIM_STATS=" + setup_.report() : "CUBESHIM_STATS=off",
        "CUBESHIM_STATS_FORMAT=json",
        row == k_second_job ? "CUBESHIM_PREFETCH=0" : "CUBESHIM_PREFETCH=1",
        "PATH=/usr/bin:/bin",
        row % 2 == 0 ? job_variable() : "LANG=C"};
    const auto more = setup_.variables();
    variables.insert(variables.end(), more.begin(), more.end());
    tests::keep_mutant(variables);
    std::vector<char*> environment;
    for (const auto& v : variables) environment.push_back(const_cast<char*>(v.c_str()));
    environment.push_back(nullptr);
    const std::string row_text = std::to_string(row), seed_text = std::to_string(seed);
    const char* const arguments[] = {TORTURE_WORKER, directory_.c_str(), row_text.c_str(),
                                     seed_text.c_str(), nullptr};
    const pid_t parent = getpid();
    pids_[row] = fork();
    if (pids_[row] != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(99);
    if (board_ == 3) fcntl(3, F_SETFD, 0);
    if (board_ != 3) dup2(board_, 3);
    execve(arguments[0], const_cast<char* const*>(arguments), environment.data());
    _exit(127);
  }
  void send(int row, int signal) const {
    if (pids_[row] > 0) ::kill(pids_[row], signal);
  }
  void kill(int row) {
    send(row, SIGKILL);
    (void)wait(row);
  }
  // Exit status, or -signal.
  int wait(int row) {
    int status = 0;
    if (pids_[row] <= 0) return 0;
    waitpid(std::exchange(pids_[row], -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  bool has_ended(int row) const {
    siginfo_t info{};
    return waitid(P_PID, static_cast<id_t>(pids_[row]), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid != 0;
  }

 private:
  static std::string job_variable() {
    char text[80];
    base::format_process_id(base::current_process(), text, sizeof text);
    return std::string("CUBESHIM_JOB=") + text;
  }
  std::string directory_, name_;
  int board_;
  const Setup& setup_;
  pid_t pids_[k_workers + 2] = {};
};

class Torture {
 public:
  Torture(unsigned seed, const Parts& parts) : random_(seed) {
    board_fd_ = memfd_create("board", MFD_CLOEXEC);
    if (board_fd_ < 0 || ftruncate(board_fd_, sizeof(Board)) != 0) std::abort();
    board_ = map_board(board_fd_);
    for (int i = 0; i < k_files; ++i) {
      const std::string bytes = content_of(i, 0);
      data_bytes_ += bytes.size();
      dir_.write(file_name(i), bytes);
    }
    setup_.emplace(parts, dir_, *board_);
  }

  bool run(std::uint64_t seconds, std::uint64_t round_seconds) {
    std::printf("%d files, %.1f MiB, %.1f times the cache\n", k_files,
                static_cast<double>(data_bytes_) / (1 << 20),
                static_cast<double>(data_bytes_) / static_cast<double>(k_ram));
    const std::uint64_t end = base::monotonic_ns() + seconds * 1'000'000'000;
    while (base::monotonic_ns() < end && is_clean())
      round(std::min(end, base::monotonic_ns() + round_seconds * 1'000'000'000));
    (void)unlink((tests::region_path("/dev/shm", name_) + ".sock").c_str());
    print();
    return is_clean() && totals_.kills > 0 && totals_.records > totals_.rounds * 50 &&
           board_->reads > 0 && board_->changes > 0 &&
           (!setup_->parts().disk || totals_.disk_hits > 0) &&
           (!setup_->parts().packs || board_->packed_reads > 0);
  }

 private:
  bool is_clean() const {
    return board_->wrong == 0 && board_->errors == 0 && totals_.hangs == 0 && totals_.died == 0 &&
           totals_.too_large == 0 && totals_.left_over == 0 && board_->leaked_fds == 0 &&
           counts_.is_clean();
  }

  void complain(const char* what, std::uint64_t& count) {
    std::printf("%s\n", what);
    ++count;
  }

  void round(std::uint64_t end) {
    ++totals_.rounds;
    std::optional<tests::TestRegion> region(std::in_place, k_ram, "/dev/shm", name_);
    const std::string region_path = region->path();
    {
      Team team(dir_.path(), name_, board_fd_, *setup_);
      board_->stop = false;
      for (int row = 0; row <= k_workers; ++row) start(team, row);
      while (base::monotonic_ns() < end && is_clean()) {
        const timespec pause{0, k_kill_every_ns};
        nanosleep(&pause, nullptr);  // the pace of the kills
        harm(team);
        look(team, region_path);
        replace_pack();
      }
      board_->stop = true;
      for (int row = 0; row <= k_workers; ++row) {
        team.send(row, SIGCONT);
        wait_for_end(team, row);
      }
    }
    totals_.records += (*region)->header().records;
    check_what_is_left(*region);
    region.reset();
    if (tests::exists(region_path)) complain("the region is still there", totals_.left_over);
    if (setup_->parts().disk) read_as_second_job();
    check_names(region_path);
  }

  void replace_pack() {
    if (!setup_->parts().packs || base::monotonic_ns() < next_pack_ns_) return;
    if (!setup_->replace_pack()) complain("no new pack", totals_.died);
    next_pack_ns_ = base::monotonic_ns() + 1'500'000'000;
  }

  // The region is new, so every byte that is not fetched comes from the disk.
  void read_as_second_job() {
    (void)unlink(setup_->report().c_str());
    Team team(dir_.path(), name_, board_fd_, *setup_);
    start(team, k_second_job);
    wait_for_end(team, k_second_job);
    const std::uint64_t hits = Setup::disk_hits_in(setup_->report());
    if (hits == 0)
      std::printf("round %llu: no file came from the disk\n",
                  static_cast<unsigned long long>(totals_.rounds));
    totals_.disk_hits += hits;
  }

  // Next to the region, only the socket of a killed leader may be left, which the next leader
  // replaces. On the disk, no unfinished file may be left.
  void check_names(const std::string& region_path) {
    for (const auto& name :
         Setup::names_in("/dev/shm", region_path.substr(std::strlen("/dev/shm/")))) {
      if (name.ends_with(".sock")) continue;
      std::printf("left in /dev/shm: %s\n", name.c_str());
      ++totals_.left_over;
    }
    if (!setup_->parts().disk) return;
    const std::string disk =
        setup_->disk() + "/cubeshim-" + std::to_string(geteuid()) + "-" + name_;
    std::uint64_t bytes = 0;
    for (const auto& name : Setup::names_in(disk, "")) {
      struct ::stat st {};
      if (stat((disk + "/" + name).c_str(), &st) == 0)
        bytes += static_cast<std::uint64_t>(st.st_blocks) * 512;
      if (name.find("new") == std::string::npos && name.find("tmp") == std::string::npos) continue;
      std::printf("left on the disk: %s\n", name.c_str());
      ++totals_.left_over;
    }
    if (bytes > Setup::k_disk) complain("the disk takes more than was allowed", totals_.too_large);
  }

  void start(Team& team, int row) {
    board_->workers[row].beat_ns = base::monotonic_ns();
    board_->workers[row].pack_floor = board_->pack_version.load() / 2;
    stopped_until_[row] = 0;
    team.start(row, static_cast<unsigned>(random_()));
  }

  void harm(Team& team) {
    const std::uint64_t now = base::monotonic_ns();
    for (int row = 0; row < k_workers; ++row) {
      if (stopped_until_[row] == 0 || now < stopped_until_[row]) continue;
      team.send(row, SIGCONT);
      stopped_until_[row] = 0;
      board_->workers[row].beat_ns = now;
    }
    const int row = static_cast<int>(random_() % k_workers);
    if (random_() % 6 == 0 && stopped_until_[row] == 0) {
      team.send(row, SIGSTOP);
      stopped_until_[row] = now + random_() % 2'500'000'000;
      ++totals_.stops;
      return;
    }
    if (team.has_ended(row)) return;  // look() reports this
    ++totals_.kills_in[board_->workers[row].phase % static_cast<std::uint32_t>(Phase::count)];
    team.kill(row);
    ++totals_.kills;
    start(team, row);
  }

  void look(Team& team, const std::string& region_path) {
    const std::uint64_t now = base::monotonic_ns();
    for (int row = 0; row <= k_workers; ++row) {
      if (team.has_ended(row)) {
        std::printf("process %d ended by itself: %d\n", row, team.wait(row));
        ++totals_.died;
        start(team, row);
      }
      const std::uint64_t beat = board_->workers[row].beat_ns;
      if (stopped_until_[row] == 0 && now > beat && now - beat > k_hang_ns)
        complain("a process hangs", totals_.hangs);
    }
    struct ::stat st {};
    if (stat(region_path.c_str(), &st) == 0 &&
        static_cast<std::uint64_t>(st.st_blocks) * 512 > k_ram) {
      complain("the region takes more than was allowed", totals_.too_large);
    }
  }

  void wait_for_end(Team& team, int row) {
    const std::uint64_t deadline = base::monotonic_ns() + k_hang_ns;
    while (!team.has_ended(row)) {
      if (base::monotonic_ns() > deadline) {
        complain("a process does not end", totals_.hangs);
        team.kill(row);
        return;
      }
      const timespec pause{0, 1'000'000};
      nanosleep(&pause, nullptr);
    }
    if (const int status = team.wait(row); status != 0) {
      std::printf("process %d ended with %d\n", row, status);
      ++totals_.died;
    }
  }

  static bool is_written(const cache::WriterStripe& stripe) {
    return stripe.others != 0 ||
           std::any_of(std::begin(stripe.writers), std::end(stripe.writers),
                       [](const auto& word) { return (word.load() & 0xffff) != 0; });
  }

  void check_what_is_left(tests::TestRegion& region) {
    tests::Survivor survivor(*region);
    survivor.check_tables(counts_);
    const auto& layout = region->layout();
    for (std::uint32_t p = 0; p < layout.process_slots; ++p) {
      if (p != region->own_slot() && region->process_slot(p).used != 0)
        complain("a slot of a dead process is left", totals_.left_over);
      if (cache::pins_of(*region, p) != 0) complain("a pin is left", totals_.left_over);
    }
    for (std::uint32_t i = 0; i < cache::k_writer_stripes; ++i) {
      if (is_written(region->writer_stripe(i))) complain("a writer is left", totals_.left_over);
    }
    fill(region, survivor.tier());
  }

  // Uses all room that has no record.
  void fill(tests::TestRegion& region, cache::RamTier& tier) {
    const std::string data(10'000, 'x');
    for (int i = 0; tests::put(tier, "/fill/" + std::to_string(i), data); ++i) {
    }
    tier.release_lease();
    fill_ring(region);
    const bool is_index_full = region->header().index_full == cache::RegionHeader::k_for_good;
    for (std::uint32_t s = 0; s < region->layout().segment_count; ++s) {
      const auto& row = region->segment_row(s);
      const auto word = cache::SegmentWord::of_word(row.word);
      const bool is_ours =
          word.state == cache::SegmentState::open && word.owner == region->own_slot();
      const bool has_room = word.state == cache::SegmentState::free ||
                            (word.state == cache::SegmentState::open &&
                             region->layout().segment_bytes - row.fill > 40'000);
      if (is_ours || (row.is_ring == 0 && (!has_room || is_index_full))) continue;
      std::printf("segment %u: state %u, fill %u, of the ring %u\n", s,
                  static_cast<unsigned>(word.state), row.fill.load(), row.is_ring.load());
      complain("a segment cannot be filled", totals_.left_over);
    }
  }

  // Leases each segment of the ring one time, after no process waits for its contents any more.
  static void fill_ring(tests::TestRegion& region) {
    cache::Ring ring(*region);
    region->header().disk_alive_ns = 0;
    region->header().ring_filling = 0;
    for (std::uint32_t s = ring.lowest_segment(); s < ring.end_segment(); ++s) {
      if (ring.owns(s)) ring.give_up(s);
    }
    while (ring.lease()) {
    }
  }

  void print() const {
    const auto n = [](const auto& value) { return static_cast<unsigned long long>(value); };
    std::printf(
        "rounds %llu, records %llu, kills %llu, stops %llu, reads %llu (%llu raced), %llu MiB, "
        "changes %llu\n",
        n(totals_.rounds), n(totals_.records), n(totals_.kills), n(totals_.stops), n(board_->reads),
        n(board_->raced), n(board_->bytes >> 20), n(board_->changes));
    std::printf("of packs %llu reads, %llu versions; from the disk %llu hits; leaked fds %llu\n",
                n(board_->packed_reads), n(board_->pack_version / 2), n(totals_.disk_hits),
                n(board_->leaked_fds));
    std::printf("killed while");
    for (int i = 0; i < static_cast<int>(Phase::count); ++i)
      std::printf("%s %s %llu", i == 0 ? "" : ",", k_phase_names[i], n(totals_.kills_in[i]));
    std::printf(
        "\nwrong %llu, hangs %llu, ended by themselves %llu, failed changes %llu, over the size "
        "%llu, left over %llu, leaked "
        "pins %d, "
        "leaked leases %d\n",
        n(board_->wrong), n(totals_.hangs + static_cast<unsigned>(counts_.hangs)), n(totals_.died),
        n(board_->errors), n(totals_.too_large), n(totals_.left_over), counts_.leaked_pins,
        counts_.leaked_leases);
    if (board_->wrong != 0) std::printf("first wrong: %s\n", board_->complaint);
  }

  const std::string name_ = tests::unique_name();
  tests::TempDir dir_;
  std::minstd_rand random_;
  int board_fd_ = -1;
  Board* board_ = nullptr;
  std::optional<Setup> setup_;
  std::uint64_t data_bytes_ = 0, next_pack_ns_ = 0;
  std::uint64_t stopped_until_[k_workers + 2] = {};
  Totals totals_;
  tests::KillCounts counts_;
};

}  // namespace
}  // namespace cube::torture

int main(int count, char** arguments) {
  std::uint64_t seconds = 30, round = 5;
  unsigned seed = 1;
  cube::torture::Parts parts;
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string option = arguments[i];
    const std::uint64_t value = std::strtoull(arguments[i + 1], nullptr, 10);
    if (option == "--seconds") {
      seconds = value;
    } else if (option == "--round") {
      round = value;
    } else if (option == "--seed") {
      seed = static_cast<unsigned>(value);
    } else if (option != "--with" || !parts.add(arguments[i + 1])) {
      std::fprintf(
          stderr, "usage: torture [--seconds N] [--round N] [--seed N] [--with disk,packs,list]\n");
      return 2;
    }
  }
  setvbuf(stdout, nullptr, _IOLBF, 0);
  cube::torture::Torture torture(seed, parts);
  return torture.run(seconds, round) ? 0 : 1;
}
