// cubeshim_large_reads FILE...: times reads of large files, with or without a preloaded library.
// Each line on stdin is a command and is answered with one line of JSON. FILE in a command is the
// number of a file of the command line, from 0. bench/large/reads.py drives it and compares the
// times.
//   digest FILE              reads all bytes by pread
//   pread FILE SIZE COUNT    reads SIZE bytes at a random multiple of SIZE, COUNT times; the places
//                            are the same each time
//   copy FILE SIZE COUNT     copies the same bytes from huge pages that hold the file: the
//                            floor of a read
//   stream FILE SIZE         opens the file, reads it from beginning to end in pieces of SIZE, and
//                            closes it
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <iostream>
#include <memory>
#include <new>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr std::size_t k_megabyte = 1 << 20, k_page = 4096, k_huge_page = 2 << 20;
// Copies in pieces: on AMD, glibc's memcpy does not use rep movsb for sizes from the L2 cache up,
// and 1 MiB then takes 1.4 times as long.
constexpr std::size_t k_copied = 64 << 10;
constexpr std::uint64_t k_seed = 1;

[[noreturn]] void fail(const std::string& path, const char* what) {
  throw std::runtime_error(fmt::format("{}: {}: {}", path, what, std::strerror(errno)));
}

// Whole pages whose memory is allocated.
class Buffer {
 public:
  explicit Buffer(std::size_t size)
      : begin_(
            static_cast<char*>(std::aligned_alloc(k_page, (size + k_page - 1) / k_page * k_page))) {
    if (begin_ == nullptr) throw std::bad_alloc();
    std::memset(begin_, 1, size);
  }
  ~Buffer() { std::free(begin_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  char* data() const { return begin_; }

 private:
  char* begin_;
};

// Anonymous memory, on huge pages if the kernel provides them.
class Arena {
 public:
  explicit Arena(std::size_t size) : size_((size / k_huge_page + 2) * k_huge_page) {
    void* const at =
        ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    ::madvise(at, size_, MADV_HUGEPAGE);
    whole_ = static_cast<char*>(at);
    begin_ = whole_ +
             (k_huge_page - reinterpret_cast<std::uintptr_t>(whole_) % k_huge_page) % k_huge_page;
  }
  ~Arena() { ::munmap(whole_, size_); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  char* data() const { return begin_; }

 private:
  std::size_t size_;
  char* whole_;
  char* begin_;
};

class File {
 public:
  explicit File(std::string path)
      : path_(std::move(path)), fd_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC)) {
    struct stat st {};
    if (fd_ < 0 || ::fstat(fd_, &st) != 0) fail(path_, "open");
    size_ = static_cast<std::size_t>(st.st_size);
  }
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  const std::string& path() const { return path_; }
  std::size_t size() const { return size_; }

  void read_at(char* to, std::size_t size, std::size_t at) const {
    if (::pread(fd_, to, size, static_cast<off_t>(at)) != static_cast<ssize_t>(size))
      fail(path_, "pread");
  }
  // Returns 0 at the end.
  std::size_t read(char* to, std::size_t size) const {
    const ssize_t n = ::read(fd_, to, size);
    if (n < 0) fail(path_, "read");
    return static_cast<std::size_t>(n);
  }

 private:
  std::string path_;
  int fd_;
  std::size_t size_ = 0;
};

class Digest {
 public:
  Digest() { XXH3_64bits_reset(&state_); }
  void add(const char* bytes, std::size_t size) { XXH3_64bits_update(&state_, bytes, size); }
  std::string text() const { return fmt::format("{:016x}", XXH3_64bits_digest(&state_)); }

 private:
  XXH3_state_t state_{};
};

std::uint64_t clock_ns(clockid_t id) {
  timespec t{};
  clock_gettime(id, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000ULL +
         static_cast<std::uint64_t>(t.tv_nsec);
}

// Measures the CPU time of the whole process, so that threads that read ahead are included.
template <typename Body>
std::string timed(Body&& body) {
  const std::uint64_t cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID), wall = clock_ns(CLOCK_MONOTONIC);
  body();
  const std::uint64_t wall_end = clock_ns(CLOCK_MONOTONIC),
                      cpu_end = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
  return fmt::format("\"wall_ns\": {}, \"cpu_ns\": {}", wall_end - wall, cpu_end - cpu);
}

std::vector<std::size_t> random_places(std::size_t file_size, std::size_t size, std::size_t count) {
  if (size == 0 || size > file_size) throw std::runtime_error("no place for such a read");
  std::mt19937_64 random(k_seed);
  std::vector<std::size_t> places(count);
  for (auto& place : places) place = random() % (file_size / size) * size;
  return places;
}

std::string digest_of(const File& file) {
  const Buffer buffer(k_megabyte);
  Digest digest;
  for (std::size_t at = 0; at < file.size(); at += k_megabyte) {
    const std::size_t size = std::min(k_megabyte, file.size() - at);
    file.read_at(buffer.data(), size, at);
    digest.add(buffer.data(), size);
  }
  return fmt::format("\"bytes\": {}, \"digest\": \"{}\"", file.size(), digest.text());
}

std::string time_preads(const File& file, std::size_t size, std::size_t count) {
  const Buffer buffer(size);
  const auto places = random_places(file.size(), size, count);
  return timed([&] {
    for (const std::size_t at : places) file.read_at(buffer.data(), size, at);
  });
}

std::string time_copies(const File& file, std::size_t size, std::size_t count) {
  const Buffer buffer(size);
  const Arena arena(file.size());
  file.read_at(arena.data(), file.size(), 0);
  const auto places = random_places(file.size(), size, count);
  return timed([&] {
    for (const std::size_t at : places) {
      for (std::size_t done = 0; done < size; done += k_copied) {
        std::memcpy(buffer.data() + done, arena.data() + at + done,
                    std::min(k_copied, size - done));
      }
      // Keeps the compiler from removing the copy.
      asm volatile("" : : "r"(buffer.data()) : "memory");
    }
  });
}

std::string time_stream(const std::string& path, std::size_t size) {
  if (size == 0) throw std::runtime_error("no piece to read");
  const Buffer buffer(size);
  Digest digest;
  std::size_t bytes = 0;
  const std::string times = timed([&] {
    const File file(path);
    while (const std::size_t n = file.read(buffer.data(), size)) {
      digest.add(buffer.data(), n);
      bytes += n;
    }
  });
  return fmt::format("{}, \"bytes\": {}, \"digest\": \"{}\"", times, bytes, digest.text());
}

// The files of the command line. Each file is opened when a command first names it, and stays open.
class Program {
 public:
  explicit Program(std::vector<std::string> paths)
      : paths_(std::move(paths)), files_(paths_.size()) {}

  std::string answer(const std::string& line) {
    std::istringstream words(line);
    std::string what;
    std::size_t number = 0, size = 0, count = 0;
    words >> what >> number >> size >> count;
    if (number >= paths_.size()) throw std::runtime_error(fmt::format("no file {}", number));
    if (what == "digest") return digest_of(file(number));
    if (what == "pread") return time_preads(file(number), size, count);
    if (what == "copy") return time_copies(file(number), size, count);
    if (what == "stream") return time_stream(paths_[number], size);
    throw std::runtime_error(fmt::format("not known: {}", line));
  }

 private:
  const File& file(std::size_t number) {
    if (!files_[number]) files_[number] = std::make_unique<File>(paths_[number]);
    return *files_[number];
  }

  std::vector<std::string> paths_;
  std::vector<std::unique_ptr<File>> files_;
};

}  // namespace

int main(int argc, char** argv) try {
  Program program({argv + 1, argv + argc});
  for (std::string line; std::getline(std::cin, line);) {
    fmt::print("{{{}}}\n", program.answer(line));
    std::fflush(stdout);
  }
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "cubeshim_large_reads: {}\n", error.what());
  return 1;
}
