// A region file with corrupt bytes in its tables and records. attach() must refuse the file or work
// with it, and nothing in the file may lead beyond the mapping. There are two sound regions to
// start from: a kept region, and a region whose process was killed while it worked. Input: the
// number of the region, a count, as many changes as the count says (table, row, place in the row,
// width, value), and then the actions.
#include <sys/mman.h>
#include <sys/wait.h>

#include <csignal>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "cache/base/hash.h"
#include "cache/file_cache.h"
#include "cache/region/life/process_reaper.h"
#include "cache/region/life/process_slots.h"
#include "cache/report/classic_report.h"
#include "cache/report/json_report.h"
#include "cache/report/text_report.h"
#include "tests/fuzz/fuzz.h"

namespace cube::cache {
namespace {

constexpr std::uint64_t k_bytes = 8 << 20;
constexpr int k_files = 4;
constexpr std::size_t k_sizes[k_files] = {0, 700, 40'000,
                                          3'000'000};  // the last one needs two adjacent segments

struct Fixture {
  base::Config config;
  std::string path;
  std::vector<std::string> files;
  RegionLayout layout;
  std::vector<std::byte> sound[2];
  std::byte* file = nullptr;  // the current file at `path`
};
Fixture* g_fixture;

std::string path_of_region(const base::Config& config) {
  return config.ram_dir + "/cubeshim-" + std::to_string(geteuid()) + "-" + config.name;
}

FileCache* attach(const base::Config& config, bool create) {
  std::string why;
  const auto cache = FileCache::attach(config, base::current_process(), create, why);
  return cache ? *cache : nullptr;
}

OpenRequest request_for(const std::string& path) { return {.key = path, .path = path.c_str()}; }

// Fills the region in another process. The process detaches, or is killed while it has a fetch, a
// pin and a writer.
void fill_region(const Fixture& f, bool killed) {
  const pid_t child = fork();
  if (child == 0) {
    FileCache* const cache = attach(f.config, true);
    FUZZ_CHECK(cache != nullptr, "no region");
    for (const auto& path : f.files)
      FUZZ_CHECK(cache->open(request_for(path)).pin, "%s", path.c_str());
    if (killed) {
      const auto held = cache->open(request_for(f.files[1]));
      cache->changes().writing_begins(f.files[2], *stat_path(AT_FDCWD, f.files[2].c_str(), 0));
      kill(getpid(), SIGKILL);
    }
    cache->detach();
    _exit(0);
  }
  int status = 0;
  FUZZ_CHECK(waitpid(child, &status, 0) == child && status == (killed ? SIGKILL : 0), "status %x",
             status);
}

// Makes a new file at the path, because the previous file might have lost its name.
void place_file(Fixture& f, std::size_t bytes) {
  if (f.file != nullptr) munmap(f.file, bytes);
  unlink(f.path.c_str());
  const int fd = open(f.path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  FUZZ_CHECK(fd >= 0 && ftruncate(fd, static_cast<off_t>(bytes)) == 0, "%s", f.path.c_str());
  void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  FUZZ_CHECK(at != MAP_FAILED, "mmap");
  f.file = static_cast<std::byte*>(at);
  close(fd);
}

std::vector<std::byte> read_region(const std::string& path) {
  std::vector<std::byte> bytes(std::filesystem::file_size(path));
  std::ifstream(path, std::ios::binary)
      .read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

struct Table {
  std::uint64_t at, row_bytes, rows;
};
Table table_of(const RegionLayout& l, std::uint8_t what) {
  switch (what % 14) {
    case 0: return {0, sizeof(RegionHeader), 1};
    case 1: return {l.jobs, sizeof(JobRow), l.job_rows};
    case 2: return {l.processes, sizeof(ProcessSlot), l.process_slots};
    case 3: return {l.pins, 4, std::uint64_t{l.process_slots} * l.segment_count};
    case 4:
    case 5: return {l.segments, sizeof(SegmentRow), l.segment_count};
    case 6: return {l.writers, sizeof(WriterStripe), k_writer_stripes};
    case 7: return {l.own_writers, 8, std::uint64_t{l.process_slots} * k_own_writers};
    case 12: return {l.left_writers, sizeof(LeftWriter), k_left_writers};
    case 13: return {l.lanes, sizeof(LaneRow), std::uint64_t{l.process_slots} * l.process_lanes};
    case 8: return {l.flights, sizeof(FlightSlot), k_flight_slots};
    case 9: return {l.index[0], 8, std::uint64_t{l.bucket_count[0]} * IndexBucket::k_slots};
    default: return {l.data, 64, std::uint64_t{l.segment_bytes} * l.segment_count / 64};
  }
}

// In some tables, only few rows are in use. For these, chooses the n-th row in use, because a
// random row would never be in use.
std::uint64_t row_for(const Fixture& f, const Table& table, std::uint8_t what, std::uint16_t row) {
  if (what % 14 < 9 || what % 14 > 11) return row % table.rows;
  const bool is_index = what % 14 == 9;
  const std::uint64_t stride = is_index ? 8 : 64;
  std::vector<std::uint64_t> living;
  for (std::uint64_t i = 0; i < table.rows; ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, f.file + table.at + i * stride, sizeof word);
    if (is_index ? word != 0 : static_cast<std::uint32_t>(word) == Record::k_magic)
      living.push_back(i);
  }
  if (living.empty()) return row % table.rows;
  // Chooses one of the four lines of a record's header, or the line of its path.
  return is_index ? living[row % living.size()]
                  : (living[row % living.size()] + row / 256 % 5) % table.rows;
}

void change(const Fixture& f, fuzz::Input& input) {
  const std::uint8_t what = input.byte();
  const Table table = table_of(f.layout, what);
  const std::uint64_t row = row_for(f, table, what, input.number<std::uint16_t>());
  const std::uint64_t in_row = input.number<std::uint16_t>() % table.row_bytes;
  const std::size_t width = std::size_t{1} << (input.byte() % 4);
  const auto value = input.number<std::uint64_t>();
  const std::uint64_t at = table.at + row * table.row_bytes + in_row / width * width;
  // Leaves out the lock word: a lock that is never released costs two seconds. RegionLock.* covers
  // this case.
  const std::uint64_t lock = offsetof(RegionHeader, lifecycle);
  if (at + width > f.sound[0].size() || (at < lock + 8 && at + width > lock)) return;
  std::memcpy(f.file + at, &value, width);
}

void check_record(const Region& region, const Record& record) {
  const auto* const begin = region.segment(0);
  const auto* const end =
      begin + std::uint64_t{region.layout().segment_bytes} * region.layout().segment_count;
  const auto* const at = reinterpret_cast<const std::byte*>(&record);
  const auto room = static_cast<std::uint64_t>(end - at);
  FUZZ_CHECK(at >= begin && at < end && room >= sizeof(Record), "the record");
  FUZZ_CHECK(record.path_length < room - sizeof(Record), "its path");
  FUZZ_CHECK(record.data_offset <= room && record.data_size <= room - record.data_offset,
             "its data");
  // Reading the path and the data must not raise a fault.
  volatile std::uint64_t sum =
      base::hash_bytes(record.path_text(), record.path_length + std::size_t{1});
  for (std::uint64_t i = 0; i < record.data_size; i += k_page)
    sum = sum + static_cast<std::uint64_t>(record.data()[i]);
}

void act(const Fixture& f, FileCache& cache, fuzz::Input& input) {
  const std::uint8_t what = input.byte();
  const std::string& path = f.files[input.byte() % k_files];
  const auto stat = *stat_path(AT_FDCWD, path.c_str(), 0);
  switch (what % 8) {
    case 0:
    case 1: {
      OpenOutcome outcome = cache.open(request_for(path));
      if (outcome.pin) check_record(cache.region(), *outcome.pin);
      if (outcome.kernel_fd >= 0) close(outcome.kernel_fd);
      break;
    }
    case 2: {
      const Pin pin = cache.find(request_for(path));
      if (!pin) break;
      check_record(cache.region(), *pin);
      const auto mappable = cache.make_mappable(*pin);
      if (mappable) check_record(cache.region(), **mappable);
      break;
    }
    case 3: cache.changes().content_changed(path, &stat); break;
    case 4: cache.changes().tree_changed(f.config.ram_dir); break;
    case 5:
      cache.changes().writing_begins(path, stat);
      cache.changes().writing_ends(stat);
      break;
    case 6: {
      const JobTotals totals = collect(cache.region(), cache.region().own_job());
      FUZZ_CHECK(report_as_json(totals).view().size() <= sizeof(ReportText{}.bytes), "report");
      FUZZ_CHECK(report_as_text(totals).view().size() <= sizeof(ReportText{}.bytes), "report");
      FUZZ_CHECK(report_as_classic(totals, input.byte(), input.byte()).view().size() <=
                     sizeof(ReportText{}.bytes),
                 "report");
      break;
    }
    default: reap_dead_processes(cache.region(), cache.region().own_slot()); break;
  }
}

// Restores only the parts that can have changed: the tables and the beginnings of the segments.
void restore(Fixture& f, const std::vector<std::byte>& sound) {
  static const std::vector<std::byte>* last = nullptr;
  if (access(f.path.c_str(), F_OK) != 0) {
    place_file(f, sound.size());
    last = nullptr;
  }
  if (std::exchange(last, &sound) != &sound) {
    std::memcpy(f.file, sound.data(), sound.size());
    return;
  }
  std::memcpy(f.file, sound.data(), f.layout.data);
  for (std::uint32_t i = 0; i < f.layout.segment_count; ++i) {
    const std::uint64_t at = f.layout.data + std::uint64_t{f.layout.segment_bytes} * i;
    std::memcpy(f.file + at, sound.data() + at, 128 << 10);
  }
}

void run(fuzz::Input input) {
  Fixture& f = *g_fixture;
  restore(f, f.sound[input.byte() % 2]);
  for (int n = input.byte() % 32; n > 0; --n) change(f, input);
  FileCache* cache = nullptr;
  // Attaches in a separate thread. The robust mutexes that it holds end with this thread, before
  // the mapping is removed.
  std::thread([&] {
    cache = attach(f.config, false);
    if (cache == nullptr) return;
    for (int n = 0; n < 32 && input.left() > 0; ++n) act(f, *cache, input);
    cache->detach();
  }).join();
  if (cache != nullptr) cache->region().unmap();
}

}  // namespace
}  // namespace cube::cache

int LLVMFuzzerInitialize(int*, char***) {
  using namespace cube::cache;
  auto& f = *(g_fixture = new Fixture);
  cube::base::set_log_level(cube::base::LogLevel::error);
  f.config = cube::base::parse_config([](const char*) { return nullptr; }).config;
  f.config.ram_dir = cube::fuzz::directory();
  f.config.name = "fuzz";
  f.config.ram = {.is_percent = false, .value = k_bytes};
  f.config.ram_keep = true;
  f.path = path_of_region(f.config);
  for (int i = 0; i < k_files; ++i) {
    f.files.push_back(f.config.ram_dir + "/f" + std::to_string(i));
    cube::fuzz::write_file(f.files.back(), std::string(k_sizes[i], static_cast<char>('a' + i)));
  }
  unlink(f.path.c_str());
  for (const bool killed : {false, true}) {
    fill_region(f, killed);
    f.sound[killed ? 1 : 0] = read_region(f.path);
    unlink(f.path.c_str());
  }
  f.layout = layout_for(k_bytes);
  FUZZ_CHECK(f.sound[0].size() == f.layout.file_bytes && f.sound[1].size() == f.layout.file_bytes,
             "no region to begin with");
  return 0;
}

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  cube::cache::run({data, size});
  return 0;
}
