#include "bench/calls/micro/call_benchmarks.h"

#include <benchmark/benchmark.h>
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>

namespace cube::bench {
namespace {

constexpr std::size_t k_mapped = 64 << 10;

struct Place {
  std::string directory, file, list;
  int directory_fd = -1, file_fd = -1, null_fd = -1;
};
Place g_place;

void remove_place() {
  std::error_code ignored;
  std::filesystem::remove_all(g_place.directory, ignored);
}

void make_place(const std::string& parent) {
  g_place.directory = fmt::format("{}/calls-{}", parent, getpid());
  g_place.file = g_place.directory + "/a.bin";
  g_place.list = g_place.directory + "/few";
  std::filesystem::create_directories(g_place.list);
  std::atexit(remove_place);
  g_place.file_fd = ::open(g_place.file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  g_place.directory_fd = ::open(g_place.directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  g_place.null_fd = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (g_place.file_fd < 0 || g_place.directory_fd < 0 || g_place.null_fd < 0 ||
      ::ftruncate(g_place.file_fd, k_mapped) != 0) {
    throw std::runtime_error(fmt::format("{}: cannot be used to time calls in", g_place.directory));
  }
}

// Adds mappings. Adjacent mappings differ in protection, so that the kernel cannot merge them.
void add_mappings(std::uint64_t layout) {
  const std::uint64_t count = (layout * 0x9e3779b97f4a7c15ULL) >> 58;
  for (std::uint64_t i = 0; i < count; ++i) {
    ::mmap(nullptr, 4096, i % 2 == 0 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
}

template <typename Body>
void add(const char* name, Body body) {
  benchmark::RegisterBenchmark(fmt::format("Call/{}", name).c_str(),
                               [body](benchmark::State& state) {
                                 long failures = 0;
                                 for (auto _ : state) failures += body() ? 0 : 1;
                                 if (failures != 0) state.SkipWithError("a call failed");
                               });
}

void register_name_calls() {
  add("open+close",
      [] { return ::close(::open(g_place.file.c_str(), O_RDONLY | O_CLOEXEC)) == 0; });
  add("openat(dirfd)+close",
      [] { return ::close(::openat(g_place.directory_fd, "a.bin", O_RDONLY | O_CLOEXEC)) == 0; });
  add("open(/dev/null)+close",
      [] { return ::close(::open("/dev/null", O_RDONLY | O_CLOEXEC)) == 0; });
  add("stat", [] {
    struct stat st {};
    return ::stat(g_place.file.c_str(), &st) == 0;
  });
  add("access", [] { return ::access(g_place.file.c_str(), R_OK) == 0; });
  add("opendir+closedir", [] { return ::closedir(::opendir(g_place.list.c_str())) == 0; });
  add("fopen+fclose", [] { return std::fclose(std::fopen(g_place.file.c_str(), "rb")) == 0; });
}

void register_fd_calls() {
  add("fstat", [] {
    struct stat st {};
    return ::fstat(g_place.file_fd, &st) == 0;
  });
  add("read(1)", [] {
    char byte = 0;
    const bool ended = ::read(g_place.file_fd, &byte, 1) == 0;
    return !ended || ::lseek(g_place.file_fd, 0, SEEK_SET) == 0;
  });
  add("pread(1)", [] {
    char byte = 0;
    return ::pread(g_place.file_fd, &byte, 1, 0) == 1;
  });
  add("write(1)", [] { return ::write(g_place.null_fd, "x", 1) == 1; });
  add("pwrite(1)", [] { return ::pwrite(g_place.file_fd, "x", 1, 0) == 1; });
  add("lseek", [] { return ::lseek(g_place.file_fd, 0, SEEK_SET) == 0; });
  add("dup+close", [] { return ::close(::dup(g_place.file_fd)) == 0; });
  add("fcntl(F_GETFL)", [] { return ::fcntl(g_place.file_fd, F_GETFL) >= 0; });
  add("mmap+munmap", [] {
    void* const at = ::mmap(nullptr, k_mapped, PROT_READ, MAP_SHARED, g_place.file_fd, 0);
    return at != MAP_FAILED && ::munmap(at, k_mapped) == 0;
  });
  add("mmap(anonymous)+munmap", [] {
    void* const at =
        ::mmap(nullptr, k_mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at != MAP_FAILED && ::munmap(at, k_mapped) == 0;
  });
  add("pipe+close+close", [] {
    int ends[2] = {-1, -1};
    return ::pipe(ends) == 0 && ::close(ends[0]) == 0 && ::close(ends[1]) == 0;
  });
}

}  // namespace

void register_call_benchmarks(const std::string& directory, std::uint64_t layout) {
  make_place(directory);
  add_mappings(layout);
  register_name_calls();
  register_fd_calls();
}

}  // namespace cube::bench
