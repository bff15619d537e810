// cubeshim_pack_bench: makes a pack of many entries and looks them up.
//   cubeshim_pack_bench FILE --entries N
// Prints one JSON object: the size of the index, the memory needed to make it, and the times of
// lookups: in the index alone, in the index and the record, and after the pages of the pack were
// dropped, with the number of pages that these lookups read.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <fstream>
#include <random>

#include "cache/base/error_text.h"
#include "cache/pack/make/pack_writer.h"
#include "cache/pack/pack_reader.h"

namespace {

using namespace cube;
using Clock = std::chrono::steady_clock;

double ns_since(Clock::time_point begin) {
  return static_cast<double>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin).count());
}

// Returns a path like those of image folders.
std::string path_of(std::uint64_t i) {
  return fmt::format("train/n{:08}/n{:08}_{}.JPEG", i / 1300, i / 1300, i % 1300);
}

long status_kib(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(field + ":"))
      return std::strtol(line.c_str() + field.size() + 1, nullptr, 10);
  }
  return -1;
}

void check(const base::Result<void>& result, const char* what) {
  if (!result)
    throw std::runtime_error(
        fmt::format("{}: {}", what, cube::base::text_of_error(result.error().value)));
}

void make(const std::string& file, std::uint64_t entries) {
  auto writer = cache::PackWriter::open({.file = file, .arguments_hash = entries});
  if (!writer) throw std::runtime_error("cannot write " + file);
  cache::FileStat stat{};
  stat.mode = S_IFREG | 0644;
  const std::byte data[64] = {};
  stat.size = sizeof data;
  for (std::uint64_t i = 0; i < entries; ++i) {
    stat.inode = i;
    check((*writer)->add({.path = path_of(i), .stat = stat}, data), "add");
  }
  check((*writer)->finish(), "finish");
}

struct Looked {
  double ns = 0, major_faults = 0;
};

Looked look_up(const cache::PackReader& pack, std::uint64_t entries, int times, bool has_record,
               unsigned seed) {
  std::mt19937_64 random(seed);
  std::vector<std::string> paths;
  for (int i = 0; i < times; ++i) paths.push_back(path_of(random() % entries));
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  const auto begin = Clock::now();
  for (const auto& path : paths) {
    const bool is_found =
        has_record ? pack.find(path).has_value() : pack.locate(base::hash_path(path)).has_value();
    if (!is_found) throw std::runtime_error(path + " is not found");
  }
  const double ns = ns_since(begin);
  getrusage(RUSAGE_SELF, &after);
  return {ns / times, static_cast<double>(after.ru_majflt - before.ru_majflt) / times};
}

void drop_pages(const std::string& file) {
  const int fd = open(file.c_str(), O_RDONLY | O_CLOEXEC);
  fsync(fd);
  posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  close(fd);
}

std::unique_ptr<cache::PackReader> open_pack(const std::string& file) {
  std::string why;
  auto pack = cache::PackReader::open(file, why);
  if (pack == nullptr) throw std::runtime_error(why);
  return pack;
}

void run(const std::string& file, std::uint64_t entries) {
  const auto begin = Clock::now();
  make(file, entries);
  const double made_s = ns_since(begin) / 1e9;
  const long anonymous_kib = status_kib("RssAnon"), peak_kib = status_kib("VmHWM");
  drop_pages(file);
  auto pack = open_pack(file);
  constexpr int k_cold = 200, k_warm = 200'000;
  const Looked cold = look_up(*pack, entries, k_cold, false, 1);
  pack = open_pack(file);
  // Reads the whole pack once, so that later lookups find it in memory.
  if (!pack->index_is_sound()) throw std::runtime_error("the index is damaged");
  const Looked warm = look_up(*pack, entries, k_warm, false, 2);
  look_up(*pack, entries, k_warm, true, 3);
  const Looked found = look_up(*pack, entries, k_warm, true, 3);
  const auto& header = pack->header();
  fmt::print(
      "{{\"entries\": {}, \"pack_bytes\": {}, \"index_bytes_per_entry\": {:.2f}, \"made_s\": "
      "{:.1f}, \"peak_rss_mib\": {}, "
      "\"anonymous_mib_at_end\": {}, \"locate_ns\": {:.0f}, \"find_ns\": {:.0f}, "
      "\"first_locate_us\": {:.1f}, "
      "\"pages_read_per_first_locate\": {:.2f}}}\n",
      entries, header.file_bytes,
      static_cast<double>(header.index_bytes) / static_cast<double>(entries), made_s,
      peak_kib / 1024, anonymous_kib / 1024, warm.ns, found.ns, cold.ns / 1e3, cold.major_faults);
}

}  // namespace

int main(int argc, char** argv) {
  std::string file;
  std::uint64_t entries = 1'000'000;
  CLI::App app("Makes a pack of many entries and looks them up.");
  app.add_option("FILE", file, "the pack; it is removed at the end")->required();
  app.add_option("--entries", entries, "how many")->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  int status = 0;
  try {
    run(file, entries);
  } catch (const std::exception& error) {
    fmt::print(stderr, "cubeshim_pack_bench: {}\n", error.what());
    status = 1;
  }
  unlink(file.c_str());
  unlink((file + ".partial").c_str());
  return status;
}
