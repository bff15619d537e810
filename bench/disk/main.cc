// cubeshim_disk_bench index DIR: segment files that have footers and no data, a restart without an index, and look-ups in it.
// cubeshim_disk_bench read DIR: real records, read in random order with O_DIRECT and without, in turn.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <random>
#include <vector>

#include "cache/disk/disk_store.h"

namespace {

using cube::cache::DiskFooterRow;
using cube::cache::DiskHeader;
using cube::cache::DiskOptions;
using cube::cache::DiskStore;
using cube::cache::k_page;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

[[noreturn]] void die(const std::string& what) {
  fmt::print(stderr, "cubeshim_disk_bench: {}\n", what);
  std::exit(1);
}

std::string path_of(std::uint64_t i) { return fmt::format("/mnt/data/train/class-{:04}/image-{:08}.jpg", i % 1000, i); }

std::unique_ptr<DiskStore> open_store(const DiskOptions& options) {
  std::string why;
  auto store = DiskStore::open(options, why);
  if (!store) die(why);
  return std::move(*store);
}

std::string cache_directory(const std::string& parent) { return fmt::format("{}/cubeshim-{}-default", parent, geteuid()); }

// Records of 110 KiB that are holes, and a true footer.
void make_segment(const std::string& directory, std::uint32_t number, std::uint64_t first, std::uint64_t count) {
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

std::uint64_t resident_bytes(const char* of) {
  // The page cache's, whoever maps it.
  const cube::base::UniqueFd fd(open(of, O_RDONLY | O_CLOEXEC));
  struct stat st {};
  fstat(fd.get(), &st);
  const auto mapping = cube::base::Mapping::shared(fd.get(), 0, static_cast<std::size_t>(st.st_size), PROT_READ);
  if (!mapping) return 0;
  std::vector<unsigned char> pages(static_cast<std::size_t>(st.st_size) / k_page + 1);
  mincore(mapping->data(), mapping->size(), pages.data());
  return k_page *
         static_cast<std::uint64_t>(std::count_if(pages.begin(), pages.end(), [](unsigned char p) { return (p & 1) != 0; }));
}

void bench_index(const std::string& parent, std::uint64_t files) {
  constexpr std::uint64_t k_in_segment = 2300;
  const std::uint64_t segments = (files + k_in_segment - 1) / k_in_segment;
  const DiskOptions options{
      .directory = parent, .size_bound = segments << 28, .expected_files = files, .is_durable = false, .job = 1};
  open_store(options);
  const std::string directory = cache_directory(parent);
  for (std::uint64_t n = 0; n < segments; ++n) {
    make_segment(directory, static_cast<std::uint32_t>(n + 1), n * k_in_segment,
                 std::min(k_in_segment, files - n * k_in_segment));
  }
  const std::string index = directory + "/index";
  std::filesystem::remove(index);
  double begin = now();
  auto store = open_store(options);
  const double rebuild = now() - begin;
  const std::uint64_t resident = resident_bytes(index.c_str());
  const auto status = store->status();
  fmt::print("files {}, in {} segment files, entries {}\n", files, segments, status.entries);
  fmt::print("restart without an index {:.2f} s ({:.2f} s per 10 million)\n", rebuild,
             rebuild * 1e7 / static_cast<double>(files));
  fmt::print("index {:.1f} bytes a file of room, {:.1f} MiB resident\n",
             static_cast<double>(store->status().used -
                                 [&] {
                                   std::uint64_t bytes = 0;
                                   for (const auto& e : std::filesystem::directory_iterator(directory)) {
                                     if (e.path().filename().string().starts_with("segment-"))
                                       bytes += cube::cache::round_up_to(e.file_size(), k_page);
                                   }
                                   return bytes;
                                 }()) /
                 static_cast<double>(files),
             static_cast<double>(resident) / (1 << 20));
  store.reset();
  begin = now();
  store = open_store(options);
  fmt::print("restart with the index {:.3f} s\n", now() - begin);
  std::mt19937_64 random(1);
  constexpr std::uint64_t k_lookups = 2'000'000;
  std::vector<std::uint64_t> hashes(k_lookups);
  for (const bool there : {true, false}) {
    for (auto& hash : hashes) hash = cube::base::hash_path(path_of(random() % files + (there ? 0 : 10 * files)));
    std::uint64_t found = 0;
    begin = now();
    for (const std::uint64_t hash : hashes) found += store->find(hash).count;
    const double ns = (now() - begin) * 1e9 / static_cast<double>(k_lookups);
    fmt::print("look-up of what is {}: {:.0f} ns, {:.4f} candidates\n", there ? "there" : "not there", ns,
               static_cast<double>(found) / static_cast<double>(k_lookups));
  }
}

void bench_read(const std::string& parent, std::uint64_t files, std::uint64_t size) {
  DiskOptions options{.directory = parent, .size_bound = 4ULL << 30, .keep_free_percent = 1, .job = 1};
  const auto writer = open_store(options);
  const std::uint64_t room = 16 << 20;
  auto* const segment = new (std::align_val_t{k_page}) std::byte[room];
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
  auto* const buffer = new (std::align_val_t{k_page}) std::byte[16 << 20];
  for (int round = 0; round < 3; ++round) {
    for (const bool is_direct : {true, false}) {
      options.is_direct = is_direct;
      const auto reader = open_store(options);
      std::uint64_t right = 0;
      const double from = now();
      for (const std::uint64_t i : order) {
        const std::string path = path_of(i);
        for (const auto& place : reader->find(cube::base::hash_path(path))) {
          if (reader->read(place, path, {buffer, 16 << 20})) ++right;
        }
      }
      const double us = (now() - from) * 1e6 / static_cast<double>(files);
      fmt::print("{}: {:.1f} us a file, {:.0f} MB/s, {} of {} right\n", is_direct ? "O_DIRECT" : "plain + DONTNEED", us,
                 static_cast<double>(size) / us, right, files);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("The disk tier's store, measured alone.");
  std::string directory;
  std::uint64_t files = 20'000'000, count = 4000, size = 110 << 10;
  auto* const index = app.add_subcommand("index", "restart and look-ups with synthetic files");
  index->add_option("DIR", directory, "directory for the cache")->required()->check(CLI::ExistingDirectory);
  index->add_option("--files", files, "how many");
  auto* const read = app.add_subcommand("read", "random reads, with O_DIRECT and without");
  read->add_option("DIR", directory, "directory for the cache")->required()->check(CLI::ExistingDirectory);
  read->add_option("--files", count, "how many");
  read->add_option("--size", size, "bytes of each");
  app.require_subcommand(1);
  CLI11_PARSE(app, argc, argv);
  if (index->parsed()) bench_index(directory, files);
  if (read->parsed()) bench_read(directory, count, size);
  return 0;
}
