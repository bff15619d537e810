// A reader or the writer of the torture: `torture_worker DIRECTORY ROW SEED`; the board is fd 3. It
// makes plain libc calls and runs with the library preloaded. Row k_workers is the writer.
#include <dirent.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <random>

#include "tests/hostile/crash/torture_files.h"

namespace cube::torture {
namespace {

Board* g_board = nullptr;
WorkerRow* g_row = nullptr;
std::string g_directory;
std::uint64_t g_pack_generation = 0;  // the generation of the pack that this process sees; 0: not
                                      // read yet

void say(Phase phase, int file) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  g_row->file.store(static_cast<std::uint32_t>(file));
  g_row->phase.store(static_cast<std::uint32_t>(phase));
  g_row->beat_ns.store(static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
                       static_cast<std::uint64_t>(now.tv_nsec));
}

void wrong(int file, const char* how, const char* what, std::uint64_t generation,
           std::uint64_t before, std::uint64_t after) {
  if (g_board->wrong.fetch_add(1) != 0) return;
  std::snprintf(g_board->complaint, sizeof g_board->complaint,
                "f%d by %s: %s (generation %llu, versions %llu..%llu, errno %d)", file, how, what,
                static_cast<unsigned long long>(generation),
                static_cast<unsigned long long>(before), static_cast<unsigned long long>(after),
                errno);
}

// A process sees the same version of a pack as long as it runs: the version that had the name when
// the process was started.
void check_packed(int file, const char* how, bool complete, const std::string& bytes) {
  g_board->reads.fetch_add(1);
  g_board->packed_reads.fetch_add(1);
  g_board->bytes.fetch_add(bytes.size());
  const std::uint64_t newest = (g_board->pack_version.load() + 1) / 2,
                      floor = g_row->pack_floor.load();
  std::uint64_t generation = 0;
  if (!complete || !is_whole(file, bytes, generation)) {
    wrong(file, how, complete ? "not whole, of a pack" : "an error, of a pack", bytes.size(), floor,
          newest);
    return;
  }
  if (generation < floor || generation > newest)
    wrong(file, how, "of another pack", generation, floor, newest);
  if (g_pack_generation != 0 && generation != g_pack_generation) {
    wrong(file, how, "of two packs in one process", generation, g_pack_generation, newest);
  }
  g_pack_generation = generation;
}

// Checks bytes of a file. Its version was `before` before they were read, and `after` afterwards.
void check(int file, const char* how, bool complete, const std::string& bytes, std::uint64_t before,
           std::uint64_t after) {
  if (file >= k_files) return check_packed(file, how, complete, bytes);
  g_board->reads.fetch_add(1);
  g_board->bytes.fetch_add(bytes.size());
  const bool still = before == after && before % 2 == 0;
  std::uint64_t generation = 0;
  const bool whole = complete && is_whole(file, bytes, generation);
  if (!whole) {
    // A file that is being written in place may be half-written or missing.
    if (still || (complete && !is_rewritten(file))) {
      wrong(file, how, complete ? "not whole" : "an error", bytes.size(), before, after);
    } else {
      g_board->raced.fetch_add(1);
    }
    return;
  }
  // The change was made through the library, so every later open must see it.
  if (generation < before / 2) wrong(file, how, "old", generation, before, after);
  if (generation > (after + 1) / 2) wrong(file, how, "from the future", generation, before, after);
}

std::string path_of(int file) {
  return g_directory + (file < k_files ? "/" : "/packed/") + file_name(file);
}
std::uint64_t version_of(int file) { return file < k_files ? g_board->versions[file].load() : 0; }

int any_file(std::minstd_rand& random) {
  if (g_board->has_packs && random() % 4 == 0)
    return k_files + static_cast<int>(random() % k_packed);
  return static_cast<int>(random() % k_files);
}

bool read_by(int fd, unsigned way, std::string& bytes) {
  std::string buffer(way % 2 == 0 ? 3000 : 100'000, '\0');
  while (true) {
    ssize_t n = 0;
    switch (way) {
      case 0:
      case 1: n = read(fd, buffer.data(), buffer.size()); break;
      case 2:
      case 3: n = pread(fd, buffer.data(), buffer.size(), static_cast<off_t>(bytes.size())); break;
      default: {
        const iovec parts[2] = {{buffer.data(), 10}, {buffer.data() + 10, buffer.size() - 10}};
        n = readv(fd, parts, 2);
      }
    }
    if (n < 0) return false;
    if (n == 0) return true;
    bytes.append(buffer, 0, static_cast<std::size_t>(n));
  }
}

bool read_plain(int file, const std::string& path, unsigned way, bool dups, std::string& bytes) {
  say(Phase::opening, file);
  int fd = open(path.c_str(), O_RDONLY | (way % 2 != 0 ? O_CLOEXEC : 0));
  if (fd < 0) return false;
  say(Phase::reading, file);
  if (dups) {
    char head[16];
    const ssize_t n = read(fd, head, sizeof head);
    const int copy = dup(fd);
    close(fd);
    fd = copy;
    if (n < 0 || lseek(fd, 0, SEEK_CUR) != n || lseek(fd, 0, SEEK_SET) != 0) {
      wrong(file, "dup", "the offset is not shared", static_cast<std::uint64_t>(n), 0, 0);
    }
  }
  const bool complete = read_by(fd, way, bytes);
  say(Phase::closing, file);
  close(fd);
  return complete;
}

bool read_mapped(int file, const std::string& path, std::string& bytes) {
  say(Phase::opening, file);
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  struct stat st {};
  fstat(fd, &st);
  const auto size = static_cast<std::size_t>(st.st_size);
  void* const at = size == 0 ? MAP_FAILED : mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  close(fd);
  if (at == MAP_FAILED) return false;
  say(Phase::mapped, file);
  bytes.assign(static_cast<const char*>(at), size);
  say(Phase::closing, file);
  munmap(at, size);
  return true;
}

bool read_stdio(int file, const std::string& path, std::string& bytes) {
  say(Phase::opening, file);
  std::FILE* const stream = std::fopen(path.c_str(), "rb");
  if (stream == nullptr) return false;
  say(Phase::stdio, file);
  char buffer[5000];
  while (const std::size_t n = std::fread(buffer, 1, sizeof buffer, stream))
    bytes.append(buffer, n);
  const bool complete = std::ferror(stream) == 0;
  say(Phase::closing, file);
  std::fclose(stream);
  return complete;
}

void read_one(int file, std::minstd_rand& random) {
  const std::string path = path_of(file);
  const std::uint64_t before = version_of(file);
  std::string bytes;
  const unsigned way = random() % 16;
  bool complete = false;
  const char* how = "read";
  if (way < 10) {
    complete = read_plain(file, path, way % 5, way >= 8, bytes);
  } else if (way < 13 && !is_rewritten(file)) {
    how = "mmap";
    complete = read_mapped(file, path, bytes);
  } else {
    how = "stdio";
    complete = read_stdio(file, path, bytes);
  }
  check(file, how, complete, bytes, before, version_of(file));
}

// A child continues to read from an inherited fd, and opens another file. The child ends with its
// parent.
void read_forked(int file, std::minstd_rand& random) {
  const std::string path = path_of(file);
  const std::uint64_t before = version_of(file);
  say(Phase::opening, file);
  const int fd = open(path.c_str(), O_RDONLY);
  if (fd < 0) {
    check(file, "fork", false, {}, before, version_of(file));
    return;
  }
  char head[8];
  const ssize_t n = read(fd, head, sizeof head);
  say(Phase::forked, file);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(0);
    std::string bytes(head, n > 0 ? static_cast<std::size_t>(n) : 0);
    const bool complete = n >= 0 && read_by(fd, 1, bytes);
    check(file, "inherited", complete, bytes, before, version_of(file));
    read_one(any_file(random), random);
    _exit(0);
  }
  close(fd);
  waitpid(child, nullptr, 0);
}

// Fds from 800 on belong to the library.
constexpr int k_numbers = 800;
bool g_had[k_numbers];  // inherited

template <typename Function>
void for_each_fd(const Function& function) {
  DIR* const stream = opendir("/proc/self/fd");
  if (stream == nullptr) return;
  while (const dirent* const entry = readdir(stream)) {
    const int fd = std::atoi(entry->d_name);
    if (entry->d_name[0] != '.' && fd < k_numbers && fd != dirfd(stream)) function(fd);
  }
  closedir(stream);
}

void count_fds() {
  for_each_fd([](int fd) {
    if (g_had[fd]) return;
    char link[32], target[200] = {};
    std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, target, sizeof target - 1) < 0) return;
    std::printf("fd %d is left: %s\n", fd, target);
    g_board->leaked_fds.fetch_add(1);
  });
  std::fflush(stdout);
}

int read_until_stopped(unsigned seed) {
  std::minstd_rand random(seed);
  while (!g_board->stop.load()) {
    const int file = any_file(random);
    if (random() % 32 == 0) {
      read_forked(file, random);
    } else {
      read_one(file, random);
    }
    say(Phase::idle, file);
  }
  count_fds();
  return 0;
}

// Reads each file one time. This is the second job of a round, which finds the disk and socket as
// the first job left them.
int read_all(unsigned seed) {
  std::minstd_rand random(seed);
  for (int file = 0; file < k_files + (g_board->has_packs ? k_packed : 0); ++file)
    read_one(file, random);
  count_fds();
  return 0;
}

bool write_file(const std::string& path, const std::string& bytes) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return false;
  // Writes two parts, so that a reader in between sees a half-written file.
  const std::size_t half = bytes.size() / 2;
  const bool whole = write(fd, bytes.data(), half) == static_cast<ssize_t>(half) &&
                     write(fd, bytes.data() + half, bytes.size() - half) ==
                         static_cast<ssize_t>(bytes.size() - half);
  return close(fd) == 0 && whole;
}

int write_until_stopped(unsigned seed) {
  std::minstd_rand random(seed);
  while (!g_board->stop.load()) {
    const int file = static_cast<int>(random() % k_files);
    say(Phase::idle, file);
    const std::string path = g_directory + "/" + file_name(file);
    std::atomic<std::uint64_t>& version = g_board->versions[file];
    const std::uint64_t generation = version.load() / 2 + 1;
    const std::string bytes = content_of(file, generation);
    version.fetch_add(1);
    bool changed = false;
    if (is_rewritten(file)) {
      changed = write_file(path, bytes);
    } else {
      changed =
          write_file(path + ".new", bytes) && rename((path + ".new").c_str(), path.c_str()) == 0;
    }
    version.fetch_add(1);
    if (!changed) g_board->errors.fetch_add(1);
    g_board->changes.fetch_add(1);
    const timespec pause{0, static_cast<long>(random() % 20'000'000)};
    nanosleep(&pause, nullptr);  // the pace of the changes
  }
  return 0;
}

}  // namespace
}  // namespace cube::torture

int main(int count, char** arguments) {
  using namespace cube::torture;
  if (count != 4) return 2;
  g_board = map_board(3);
  if (g_board == nullptr) return 2;
  g_directory = arguments[1];
  for_each_fd([](int fd) { g_had[fd] = true; });
  const int row = std::atoi(arguments[2]);
  g_row = &g_board->workers[row];
  const auto seed = static_cast<unsigned>(std::atoi(arguments[3]));
  if (row == k_second_job) return read_all(seed);
  return row == k_workers ? write_until_stopped(seed) : read_until_stopped(seed);
}
