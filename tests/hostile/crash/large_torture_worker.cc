// One process of large_torture: `large_torture_worker DIR ROW SEED`. It reads and checks files, or
// changes them, until the board says stop.
#include <poll.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <random>
#include <string_view>
#include <thread>
#include <utility>

#include "tests/hostile/crash/large_torture_opened.h"

namespace cube::large_torture {
namespace {

void read_in_turn(Opened& file, Random& random) {
  std::vector<char> buffer(1 + below(random, random() % 3 == 0 ? 2'000'000 : 60'000));
  std::uint64_t at = random() % 3 == 0 ? 0 : below(random, file.size());
  const std::uint64_t end = at + below(random, 12'000'000);
  if (lseek(file.fd(), static_cast<off_t>(at), SEEK_SET) != static_cast<off_t>(at))
    wrong(file.file(), "lseek", at, 0, 0, 0);
  const bool in_parts = random() % 3 == 0;
  while (at < end) {
    const std::size_t half = buffer.size() / 3;
    const iovec parts[2] = {{buffer.data(), half}, {buffer.data() + half, buffer.size() - half}};
    const ssize_t got = file.checked(at, buffer.size(), buffer.data(), [&] {
      return in_parts ? readv(file.fd(), parts, 2) : read(file.fd(), buffer.data(), buffer.size());
    });
    if (got <= 0) break;
    at += static_cast<std::uint64_t>(got);
    const off_t is_at = lseek(file.fd(), 0, SEEK_CUR);
    if (static_cast<std::uint64_t>(is_at) != at)
      wrong(file.file(), "the offset", at, static_cast<std::uint64_t>(is_at), 0, 0);
  }
}

void read_anywhere(Opened& file, Random& random, int times) {
  std::vector<char> buffer(1 + below(random, 150'000));
  for (int i = 0; i < times; ++i) {
    const std::uint64_t at = below(random, file.size()), n = 1 + below(random, buffer.size());
    file.checked(at, n, buffer.data(),
                 [&] { return pread(file.fd(), buffer.data(), n, static_cast<off_t>(at)); });
  }
}

void* start_threads_body(void* of) {
  (*static_cast<std::function<void()>*>(of))();
  return nullptr;
}

void read_in_threads(Opened& file, Random& random) {
  constexpr int k_threads = 4;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 64 << 10);
  pthread_t threads[k_threads];
  std::function<void()> bodies[k_threads];
  for (int i = 0; i < k_threads; ++i) {
    bodies[i] = [&file, seed = random()] {
      t_way = "thread";
      Random own(static_cast<unsigned>(seed));
      // Each thread opens the file itself, because an Opened tracks the bytes that may be seen
      // since its open.
      Opened again(file.file(), O_CLOEXEC);
      if (again) read_anywhere(again, own, 20);
    };
    if (pthread_create(&threads[i], &attributes, start_threads_body, &bodies[i]) != 0)
      bodies[i] = nullptr;
  }
  for (int i = 0; i < k_threads; ++i) {
    if (bodies[i]) pthread_join(threads[i], nullptr);
  }
  pthread_attr_destroy(&attributes);
}

// A thread reads an fd that is closed during the read and then refers to another file. The read
// must return bytes of one of the two files.
void read_while_closed(Random& random) {
  Opened first(0, O_CLOEXEC);
  if (!first) return;
  const int fd = first.give_up();
  std::atomic<bool> is_over{false};
  const auto seed = static_cast<unsigned>(random());
  std::thread reader([&] {
    t_way = "closed";
    Random own(seed);
    std::vector<char> buffer(70'000);
    while (!is_over) {
      const std::uint64_t at = below(own, 20 * k_mb) / 8 * 8;
      const ssize_t got = pread(fd, buffer.data(), buffer.size(), static_cast<off_t>(at));
      if (got < 0 && errno != EBADF && errno != ESPIPE && errno != EISDIR)
        wrong(0, "an error of a closed file", at, static_cast<std::uint64_t>(errno), 0, 0);
      if (got < 8) continue;
      std::uint64_t word = 0;
      std::memcpy(&word, buffer.data(), 8);
      const auto file = static_cast<int>((word * k_inverse >> 34 & 63) - 1);
      if (file != 0 && file != 1)
        wrong(file, "bytes of a file that was never there", at, word, 0, 0);
      check({file, 0, 0}, buffer.data(), static_cast<std::uint64_t>(got), at);
    }
  });
  for (int i = 0; i < 30; ++i) {
    Opened other(i % 2, O_CLOEXEC);
    if (!other) break;
    if (i % 3 == 0) close(fd);
    if (dup2(other.fd(), fd) != fd) break;
    read_anywhere(other, random, 2);
  }
  is_over = true;
  reader.join();
  close(fd);
}

void read_mapped(Opened& file, Random& random) {
  if (file.kind() == Kind::truncated || file.size() == 0) return;
  constexpr std::uint64_t k_page = 4096;
  const std::uint64_t from = random() % 2 == 0 ? 0 : below(random, file.size()) / k_page * k_page;
  std::uint64_t length =
      random() % 2 == 0 ? file.size() - from : 1 + below(random, file.size() - from);
  const bool is_private = random() % 2 == 0, is_written = is_private && random() % 2 == 0;
  void* at = mmap(nullptr, length, is_written ? PROT_READ | PROT_WRITE : PROT_READ,
                  is_private ? MAP_PRIVATE : MAP_SHARED, file.fd(), static_cast<off_t>(from));
  if (at == MAP_FAILED)
    return wrong(file.file(), "mmap", from, static_cast<std::uint64_t>(errno), length, 0);
  g_board->maps.fetch_add(1, std::memory_order_relaxed);
  auto* bytes = static_cast<char*>(at);
  const auto look = [&](int times) {
    for (int i = 0; i < times; ++i) {
      const std::uint64_t place = below(random, length),
                          n = std::min<std::uint64_t>(1 + below(random, 40'000), length - place);
      file.check_mapped(bytes + place, n, from + place);
    }
  };
  look(20);
  if (is_written) {
    const std::uint64_t page = below(random, length) / k_page * k_page,
                        n = std::min(k_page, length - page);
    std::memset(bytes + page, 'x', n);
    for (std::uint64_t i = 0; i < n; ++i) {
      if (bytes[page + i] != 'x') wrong(file.file(), "a private page", page, i, 0, 0);
    }
    madvise(bytes + page, k_page, MADV_DONTNEED);
    file.check_mapped(bytes + page, n, from + page);
    look(5);
  }
  if (!is_private && random() % 3 == 0) {
    const std::uint64_t shorter = (length + 1) / 2;
    void* const moved = mremap(bytes, length, shorter, MREMAP_MAYMOVE);
    if (moved == MAP_FAILED) {
      wrong(file.file(), "mremap", from, static_cast<std::uint64_t>(errno), length, shorter);
    } else {
      bytes = static_cast<char*>(moved);
      length = shorter;
      look(5);
    }
  }
  if (munmap(bytes, length) != 0) wrong(file.file(), "munmap", from, length, 0, 0);
}

// A child continues to read with the same offset and mapping. The child ends with its parent.
void read_forked(Opened& file, Random& random) {
  const pid_t parent = getpid();
  const auto seed = static_cast<unsigned>(random());
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(0);
    t_way = "child";
    Random own(seed);
    read_anywhere(file, own, 10);
    Opened other(static_cast<int>(own() % k_file_count), O_CLOEXEC);
    if (other && other.size() != 0) read_in_turn(other, own);
    _exit(0);
  }
  read_anywhere(file, random, 10);
  int status = 0;
  waitpid(child, &status, 0);
  if (status != 0)
    wrong(file.file(), "the child's end", 0, static_cast<std::uint64_t>(status), 0, 0);
}

sigjmp_buf g_jump;
volatile sig_atomic_t g_is_armed, g_reads_in_handler;
void on_alarm(int) {
  if (g_reads_in_handler != 0) {
    const int before = errno;
    const int fd = open((g_directory + "/" + name_of(1)).c_str(), O_RDONLY | O_CLOEXEC);
    char bytes[5000];
    if (fd >= 0 && pread(fd, bytes, sizeof bytes, 8'000'000) == sizeof bytes)
      check({1, 0, 0}, bytes, sizeof bytes, 8'000'000);
    if (fd >= 0) close(fd);
    errno = before;
  }
  if (g_is_armed == 0) return;
  g_is_armed = 0;
  siglongjmp(g_jump, 1);
}

void set_timer(long us) {
  const itimerval timer{{0, 0}, {0, us}};
  setitimer(ITIMER_REAL, &timer, nullptr);
}

void read_with_jumps(Random& random) {
  const int file = static_cast<int>(random() % 2);
  static std::vector<char> buffer(400'000);
  g_reads_in_handler = random() % 2 == 0 ? 1 : 0;
  const int fd = open((g_directory + "/" + name_of(file)).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  static volatile int jumps;
  for (jumps = 0; jumps < 10;) {
    const std::uint64_t at = below(random, 20 * k_mb);
    set_timer(static_cast<long>(20 + below(random, 1500)));
    if (sigsetjmp(g_jump, 1) != 0) {
      jumps = jumps + 1;
      g_board->jumps.fetch_add(1, std::memory_order_relaxed);
      continue;
    }
    g_is_armed = 1;
    const ssize_t got =
        jumps % 3 == 2 ? -2 : pread(fd, buffer.data(), buffer.size(), static_cast<off_t>(at));
    if (got == -2) {
      void* const mapped = mmap(nullptr, k_mb, PROT_READ, MAP_PRIVATE, fd, 0);
      g_is_armed = 0;
      if (mapped != MAP_FAILED) munmap(mapped, k_mb);
    }
    g_is_armed = 0;
    set_timer(0);
    if (got == -2) jumps = jumps + 1;
    if (got < 0) continue;
    if (got != static_cast<ssize_t>(buffer.size()))
      wrong(file, "a short read beside jumps", at, static_cast<std::uint64_t>(got), 0, 0);
    check({file, 0, 0}, buffer.data(), static_cast<std::uint64_t>(got), at);
    if (random() % 8 == 0) jumps = jumps + 1;
  }
  set_timer(0);
  g_reads_in_handler = 0;
  close(fd);
}

void read_stdio(Opened& file, Random& random) {
  std::FILE* const stream = fdopen(dup(file.fd()), "rb");
  if (stream == nullptr) return wrong(file.file(), "fdopen", 0, 0, 0, 0);
  if (file.is_steady()) {
    char bytes[9000];
    for (int i = 0; i < 8; ++i) {
      const std::uint64_t at = below(random, file.size() - sizeof bytes);
      std::fseek(stream, static_cast<long>(at), SEEK_SET);
      file.checked(at, sizeof bytes, bytes, [&] {
        return static_cast<ssize_t>(std::fread(bytes, 1, sizeof bytes, stream));
      });
    }
  }
  std::fclose(stream);
}

void read_locked(Opened& file, Random& random) {
  if (flock(file.fd(), LOCK_SH | LOCK_NB) != 0) return;
  read_anywhere(file, random, 5);
  if (random() % 2 == 0) flock(file.fd(), LOCK_UN);
}

void read_small(Random& random) {
  char bytes[40'000];
  for (int i = 0; i < 20; ++i) {
    const int file = static_cast<int>(random() % k_small_files);
    const int fd = open((g_directory + "/" + small_name(file)).c_str(), O_RDONLY | O_CLOEXEC);
    const ssize_t got = fd >= 0 ? read(fd, bytes, sizeof bytes) : -1;
    const std::string expected(20'000 + static_cast<std::size_t>(file),
                               static_cast<char>('a' + file % 26));
    if (got < 0 || expected != std::string_view(bytes, static_cast<std::size_t>(got)))
      wrong(-file, "a small file", 0, static_cast<std::uint64_t>(got), 0, 0);
    if (fd >= 0) close(fd);
  }
}

void read_one(Random& random) {
  static constexpr const char* k_ways[] = {"in turn", "anywhere", "mapped", "threads", "forked",
                                           "jumps",   "stdio",    "locked", "small",   "closed"};
  static constexpr unsigned k_shares[] = {0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 4, 5, 6, 7, 8, 9};
  const unsigned way = k_shares[random() % std::size(k_shares)];
  t_way = k_ways[way];
  beat(way);
  if (way == 5) return read_with_jumps(random);
  if (way == 8) return read_small(random);
  if (way == 9) return read_while_closed(random);
  Opened file(static_cast<int>(random() % k_file_count), random() % 2 == 0 ? O_CLOEXEC : 0);
  if (!file || file.size() == 0) return;
  if (file.kind() == Kind::truncated && way != 0 && way != 1) return;
  switch (way) {
    case 0: return read_in_turn(file, random);
    case 1: return read_anywhere(file, random, 40);
    case 2: return read_mapped(file, random);
    case 3: return read_in_threads(file, random);
    case 4: return read_forked(file, random);
    case 6: return read_stdio(file, random);
    default: return read_locked(file, random);
  }
}

int read_until_stopped(unsigned seed) {
  struct sigaction action {};
  action.sa_handler = on_alarm;
  action.sa_flags = SA_RESTART;
  sigaction(SIGALRM, &action, nullptr);
  Random random(seed);
  while (!g_board->stop.load()) read_one(random);
  return 0;
}

bool change(int file, Random& random) {
  const std::string path = g_directory + "/" + name_of(file);
  std::atomic<std::uint64_t>& version = g_board->versions[file];
  const std::uint64_t generation = version.load() / 2 + 1;
  if (k_files[file].kind == Kind::rewritten) {
    const std::uint64_t area = below(random, k_files[file].size / k_area);
    const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
    std::atomic<std::uint64_t>& of = g_board->areas[area];
    of.fetch_add(1);
    const bool is_done = fd >= 0 && write_words(fd, file, of.load() / 2 + 1, area * k_area, k_area);
    of.fetch_add(1);
    return is_done && close(fd) == 0;
  }
  if (k_files[file].kind == Kind::appended) {
    const std::uint64_t at = g_board->length.load();
    if (at + 100'000 > k_most_bytes) return true;
    const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
    const bool is_done = fd >= 0 && write_words(fd, file, 0, at / 8 * 8, 100'000);
    g_board->length.store(at / 8 * 8 + 100'000);
    return is_done && close(fd) == 0;
  }
  if (k_files[file].kind == Kind::truncated) {
    version.fetch_add(1);
    const bool is_done = write_file(path, file, generation);
    version.fetch_add(1);
    return is_done;
  }
  if (!write_file(path + ".new", file, generation)) return false;
  version.fetch_add(1);
  const bool is_done = rename((path + ".new").c_str(), path.c_str()) == 0;
  version.fetch_add(1);
  return is_done;
}

int write_until_stopped(unsigned seed) {
  Random random(seed);
  while (!g_board->stop.load()) {
    beat(100);
    const int file = static_cast<int>(random() % k_file_count);
    const Kind kind = k_files[file].kind;
    if (kind == Kind::constant || (kind == Kind::replaced_outside) != (g_row == k_outside_writer))
      continue;
    if (!change(file, random)) g_board->errors.fetch_add(1);
    g_board->changes.fetch_add(1);
    poll(nullptr, 0, static_cast<int>(random() % 100));  // the pace of the changes
  }
  return 0;
}

}  // namespace
}  // namespace cube::large_torture

int main(int count, char** arguments) {
  using namespace cube::large_torture;
  if (count != 4) return 2;
  g_board = map_board(3);
  if (g_board == nullptr) return 2;
  g_directory = arguments[1];
  g_row = std::atoi(arguments[2]);
  const auto seed = static_cast<unsigned>(std::atoi(arguments[3]));
  return g_row < k_readers ? read_until_stopped(seed) : write_until_stopped(seed);
}
