// cubeshim_disk_bench index DIR: makes segment files that have footers but no data. Measures
// restarts without an index, the index's size, and lookups in it. The files are not removed.
// cubeshim_disk_bench read DIR: reads real records in random order, with O_DIRECT and without,
// alternately.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <exception>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string_view>
#include <vector>

#include "cache/tier/disk/disk_store.h"

namespace {

using cube::cache::DiskFooterRow;
using cube::cache::DiskHeader;
using cube::cache::DiskOptions;
using cube::cache::DiskStore;
using cube::cache::k_page;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

[[noreturn]] void die(const std::string& what) {
  fmt::print(stderr, "cubeshim_disk_bench: {}\n", what);
  std::exit(1);
}

std::string path_of(std::uint64_t i) {
  return fmt::format("/mnt/data/train/class-{:04}/image-{:08}.jpg", i % 1000, i);
}

std::unique_ptr<DiskStore> open_store(const DiskOptions& options) {
  std::string why;
  auto store = DiskStore::open(options, why);
  if (!store) die(why);
  return std::move(*store);
}

std::string cache_directory(const std::string& parent) {
  return fmt::format("{}/cubeshim-{}-default", parent, geteuid());
}

// Makes a segment with a valid footer; its records of 110 KiB are holes.
void make_segment(const std::string& directory, std::uint32_t number, std::uint64_t first,
                  std::uint64_t count) {
  const std::string path = fmt::format("{}/segment-{:08}", directory, number);
  const cube::base::UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!fd) die("cannot make " + path);
  DiskHeader header{};
  header.magic = DiskHeader::k_magic;
  header.version = cube::cache::k_disk_version;
  header.number = number;
  header.hash = hash_of(header);
  if (pwrite(fd.get(), &header, sizeof header, 0) != sizeof header) die("cannot write " + path);
  std::vector<DiskFooterRow> rows(count);
  std::uint64_t at = k_page;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t bytes = 110 << 10;
    rows[i].path_hash = cube::base::hash_path(path_of(first + i));
    rows[i].inode_hash = cube::base::hash_inode(1, first + i);
    rows[i].offset = static_cast<std::uint32_t>(at / 64);
    rows[i].size = static_cast<std::uint32_t>(bytes / 64);
    at += bytes;
  }
  if (!write_footer(fd.get(), number, at, rows, false)) die("cannot write " + path);
}

double cpu_now() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// Measures several rounds: median, minimum and maximum of the wall time, and median of the CPU
// time.
class Times {
 public:
  template <typename Body>
  void add(Body&& body) {
    const double wall = now(), cpu = cpu_now();
    body();
    wall_.push_back(now() - wall);
    cpu_.push_back(cpu_now() - cpu);
  }
  std::string text(double scale, int digits, std::string_view unit) {
    std::sort(wall_.begin(), wall_.end());
    std::sort(cpu_.begin(), cpu_.end());
    const auto scaled = [&](double value) { return fmt::format("{:.{}f}", value * scale, digits); };
    return fmt::format("{} ({} - {}) {}, {} {} of CPU", scaled(wall_[wall_.size() / 2]),
                       scaled(wall_.front()), scaled(wall_.back()), unit,
                       scaled(cpu_[cpu_.size() / 2]), unit);
  }

 private:
  std::vector<double> wall_, cpu_;
};

struct Pages {
  // Bytes on the disk, and bytes in the page cache for all processes together.
  std::uint64_t reserved = 0, cached = 0;
};
Pages pages_of(const std::string& of) {
  const cube::base::UniqueFd fd(open(of.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat st {};
  fstat(fd.get(), &st);
  const auto mapping =
      cube::base::Mapping::shared(fd.get(), 0, static_cast<std::size_t>(st.st_size), PROT_READ);
  if (!mapping) die("cannot map " + of);
  std::vector<unsigned char> pages(static_cast<std::size_t>(st.st_size) / k_page + 1);
  mincore(mapping->data(), mapping->size(), pages.data());
  const auto cached =
      std::count_if(pages.begin(), pages.end(), [](unsigned char p) { return (p & 1) != 0; });
  return {static_cast<std::uint64_t>(st.st_blocks) * 512,
          static_cast<std::uint64_t>(cached) * k_page};
}

// Returns how many bytes of the file are mapped in this process and present in memory, from
// /proc/self/smaps. If `advice` is given, calls madvise first.
std::uint64_t mapped_bytes(const std::string& of, int advice = 0) {
  std::uint64_t bytes = 0;
  for (int pass = advice == 0 ? 1 : 0; pass < 2; ++pass) {
    std::ifstream maps("/proc/self/smaps");
    bool is_it = false;
    for (std::string line; std::getline(maps, line);) {
      unsigned long begin = 0, end = 0;
      unsigned long long kib = 0;
      if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
        is_it = line.ends_with(of);
        if (is_it && pass == 0 && madvise(reinterpret_cast<void*>(begin), end - begin, advice) != 0)
          die("madvise");
      } else if (is_it && pass == 1 && std::sscanf(line.c_str(), "Rss: %llu kB", &kib) == 1) {
        bytes += kib << 10;
      }
    }
  }
  return bytes;
}

void drop_from_memory(const std::string& path) {
  const cube::base::UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
}

void sync_directory(const std::string& path) {
  const cube::base::UniqueFd fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (syncfs(fd.get()) != 0) die("syncfs");
}

// Returns the total number of candidates.
std::uint64_t look_up(const DiskStore& store, std::uint64_t from, std::uint64_t files,
                      std::uint64_t count, Times& times) {
  static std::mt19937_64 random(1);
  std::vector<std::uint64_t> hashes(count);
  for (auto& hash : hashes) hash = cube::base::hash_path(path_of(from + random() % files));
  std::uint64_t found = 0;
  times.add([&] {
    for (const std::uint64_t hash : hashes) found += store.find(hash).count;
  });
  return found;
}

void bench_index(const std::string& parent, std::uint64_t files, int rounds) {
  constexpr std::uint64_t k_in_segment = 2300;
  const std::uint64_t segments = (files + k_in_segment - 1) / k_in_segment;
  const DiskOptions options{.directory = parent,
                            .size_bound = segments << 28,
                            .expected_files = files,
                            .is_durable = false,
                            .job = 1};
  open_store(options);
  const std::string directory = cache_directory(parent);
  for (std::uint64_t n = 0; n < segments; ++n) {
    make_segment(directory, static_cast<std::uint32_t>(n + 1), n * k_in_segment,
                 std::min(k_in_segment, files - n * k_in_segment));
  }
  const std::string index = directory + "/index";
  const auto in_millions = static_cast<double>(files) / 1e6;
  std::unique_ptr<DiskStore> store;
  for (const bool is_cold : {false, true}) {
    Times times;
    for (int round = 0; round < rounds; ++round) {
      store.reset();
      std::filesystem::remove(index);
      if (is_cold) {
        sync_directory(directory);
        for (const auto& entry : std::filesystem::directory_iterator(directory))
          drop_from_memory(entry.path());
      }
      times.add([&] { store = open_store(options); });
    }
    if (store->status().entries != files) die("not all files came back");
    fmt::print("restart without an index of this boot, {:.1f} million files, footers {}: {}\n",
               in_millions, is_cold ? "on the disk" : "in memory", times.text(1, 2, "s"));
  }
  Times again;
  for (int round = 0; round < rounds; ++round) {
    store.reset();
    again.add([&] { store = open_store(options); });
  }
  fmt::print("restart with it: {}\n", again.text(1000, 2, "ms"));

  constexpr std::uint64_t k_warm = 300'000, k_cold = 5'000;
  const auto look_ups = [&](const char* how, std::uint64_t count) {
    for (const bool there : {true, false}) {
      Times times;
      std::uint64_t found = 0;
      for (int round = 0; round < rounds; ++round)
        found += look_up(*store, there ? 0 : 10 * files, files, count, times);
      fmt::print("look-up of what is {}, {}: {}, {:.4f} candidates\n",
                 there ? "there" : "not there", how,
                 times.text(1e9 / static_cast<double>(count), 0, "ns"),
                 static_cast<double>(found) / static_cast<double>(count) / rounds);
    }
  };
  const auto tell = [&](const char* when) {
    const Pages pages = pages_of(index);
    fmt::print(
        "index {}: {:.1f} bytes a file on the disk, {:.1f} in the page cache, {:.1f} in the "
        "process\n",
        when, static_cast<double>(pages.reserved) / static_cast<double>(files),
        static_cast<double>(pages.cached) / static_cast<double>(files),
        static_cast<double>(mapped_bytes(index)) / static_cast<double>(files));
  };
  look_ups("in memory", k_warm);
  tell("in use");
  // Evicts pages like the kernel when memory is short.
  const auto page_out = [&] {
    sync_directory(directory);
    mapped_bytes(index, MADV_PAGEOUT);
    drop_from_memory(index);
  };
  page_out();
  tell("paged out");
  look_ups("paged out", k_cold);
  tell("after these");
}

void bench_read(const std::string& parent, std::uint64_t files, std::uint64_t size) {
  DiskOptions options{
      .directory = parent, .size_bound = 4ULL << 30, .keep_free_percent = 1, .job = 1};
  const auto writer = open_store(options);
  const std::uint64_t room = 16 << 20;
  const auto memory = cube::base::Mapping::anonymous(room);
  if (!memory) die("no memory");
  std::byte* const segment = memory->data();
  double writing = 0;
  std::uint64_t bytes = 0;
  for (std::uint64_t i = 0; i < files;) {
    std::vector<std::uint64_t> offsets;
    std::uint64_t fill = 0;
    for (; i < files; ++i) {
      const std::string path = path_of(i);
      const auto plan = cube::cache::plan_record(fill, path.size(), size);
      if (plan.end > room) break;
      std::fill_n(segment + plan.data, size, static_cast<std::byte>(i));
      cube::cache::FileStat stat{};
      stat.size = size;
      stat.inode = i + 1;
      cube::cache::write_record(segment, plan, {.path = path, .stat = stat});
      reinterpret_cast<cube::cache::Record*>(segment + plan.start)->stale.store(0);
      offsets.push_back(plan.start);
      fill = plan.end;
    }
    const double begin = now();
    if (!writer->append({segment, room}, offsets)) die("append");
    writing += now() - begin;
    bytes += fill;
  }
  const double begin = now();
  if (!writer->seal()) die("seal");
  writing += now() - begin;
  fmt::print("append with fdatasync {:.0f} MB/s\n", static_cast<double>(bytes) / writing / 1e6);
  std::vector<std::uint64_t> order(files);
  for (std::uint64_t i = 0; i < files; ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), std::mt19937_64(1));
  const auto room_to_read = cube::base::Mapping::anonymous(room);
  if (!room_to_read) die("no memory");
  for (int round = 0; round < 3; ++round) {
    for (const bool is_direct : {true, false}) {
      options.is_direct = is_direct;
      const auto reader = open_store(options);
      std::uint64_t right = 0;
      const double from = now();
      for (const std::uint64_t i : order) {
        const std::string path = path_of(i);
        for (const auto& place : reader->find(cube::base::hash_path(path))) {
          if (reader->read(place, path, {room_to_read->data(), room})) ++right;
        }
      }
      const double us = (now() - from) * 1e6 / static_cast<double>(files);
      fmt::print("{}: {:.1f} us a file, {:.0f} MB/s, {} of {} right\n",
                 is_direct ? "O_DIRECT" : "plain + DONTNEED", us, static_cast<double>(size) / us,
                 right, files);
    }
  }
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app("The disk tier's store, measured alone.");
  std::string directory;
  std::uint64_t files = 20'000'000, count = 4000, size = 110 << 10;
  int rounds = 5;
  auto* const index = app.add_subcommand("index", "restart and look-ups with synthetic files");
  index->add_option("DIR", directory, "directory for the cache")
      ->required()
      ->check(CLI::ExistingDirectory);
  index->add_option("--files", files, "how many");
  index->add_option("--rounds", rounds, "of each measurement")->check(CLI::PositiveNumber);
  auto* const read = app.add_subcommand("read", "random reads, with O_DIRECT and without");
  read->add_option("DIR", directory, "directory for the cache")
      ->required()
      ->check(CLI::ExistingDirectory);
  read->add_option("--files", count, "how many");
  read->add_option("--size", size, "bytes of each");
  app.require_subcommand(1);
  CLI11_PARSE(app, argc, argv);
  if (index->parsed()) bench_index(directory, files, rounds);
  if (read->parsed()) bench_read(directory, count, size);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "cubeshim_disk_bench: %s\n", error.what());
  return 1;
}
