#include "shim/cli/bench/bench_machine.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cache/base/clock.h"
#include "cache/base/error_text.h"
#include "cache/base/file_io.h"
#include "cache/base/memory/memory_limits.h"
#include "cache/base/settings/config.h"
#include "cache/base/sys.h"
#include "cache/base/unique_fd.h"
#include "cache/record/recent_change.h"
#include "shim/cli/bench/bench_sample.h"
#include "shim/cli/interrupt.h"
#include "shim/cli/run/library.h"
#include "shim/cli/settings.h"

namespace cube::cli {
namespace {

// The files together are larger than most processor caches, so that a hit copies from memory.
constexpr std::uint64_t k_most_bytes = 64 << 20;
constexpr std::size_t k_most_files = 2048;
constexpr std::size_t k_on_disk = 256;  // the number of files to read from the disk

// A temporary directory. The destructor removes it, with all files that this command has put there.
class BenchScratch {
 public:
  explicit BenchScratch(const std::string& parent) : path_(parent + "/cubeshim-bench-XXXXXX") {
    if (mkdtemp(path_.data()) == nullptr) {
      why_ = fmt::format("cannot make a directory in {}: {}", parent, base::text_of_error(errno));
      path_.clear();
    } else if (mkdir((path_ + "/files").c_str(), 0700) != 0) {
      why_ = fmt::format("{}/files: {}", path_, base::text_of_error(errno));
    }
  }
  ~BenchScratch() {
    if (path_.empty()) return;
    for (const auto& file : files_) unlink(file.c_str());
    for (const char* const name : {"/times", "/report", "/errors"}) unlink((path_ + name).c_str());
    rmdir((path_ + "/files").c_str());
    rmdir(path_.c_str());
  }
  BenchScratch(const BenchScratch&) = delete;
  BenchScratch& operator=(const BenchScratch&) = delete;

  // Returns false if a file cannot be made; why() gives the reason.
  bool make_files(std::span<const std::uint64_t> sizes) {
    std::uint64_t left = k_most_bytes;
    std::vector<char> bytes;
    for (std::size_t i = 0; i < k_most_files && !sizes.empty() && why_.empty(); ++i) {
      const std::uint64_t size = sizes[i % sizes.size()];
      if (size > left) continue;
      left -= size;
      // The files are not full of zeros, which a disk may handle faster.
      for (std::size_t at = bytes.size(); at < size; ++at)
        bytes.push_back(static_cast<char>(at * 2654435761U >> 13));
      make_file(fmt::format("{}/files/{}", path_, i),
                {bytes.data(), static_cast<std::size_t>(size)});
    }
    if (why_.empty() && files_.empty()) why_ = "no file that was read is small enough";
    return why_.empty();
  }
  // Waits until the library may cache the files. The library caches no file shortly after a change,
  // because a second change could go unnoticed. Gives up if the clock of the file system is ahead.
  void wait_until_trusted() const {
    const std::uint64_t until_ns =
        base::monotonic_ns() + (cache::k_racy_seconds + 1) * 1'000'000'000ULL;
    for (const auto& file : files_) {
      const auto stat = cache::stat_path(AT_FDCWD, file.c_str(), 0);
      while (stat && cache::may_hide_change(*stat, base::wall_ns()) &&
             base::monotonic_ns() < until_ns && interrupted_by() == 0)
        poll(nullptr, 0, 50);
    }
  }
  const std::string& path() const { return path_; }
  const std::vector<std::string>& files() const { return files_; }
  const std::string& why() const { return why_; }

 private:
  void make_file(const std::string& path, std::string_view bytes) {
    const base::UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (fd) files_.push_back(path);
    bool is_well = static_cast<bool>(fd);
    while (is_well && !bytes.empty()) {
      const ssize_t n = ::write(fd.get(), bytes.data(), bytes.size());
      is_well = n > 0;
      if (is_well) bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    // The kernel cannot drop pages before they are written to the disk.
    if (!is_well || (files_.size() <= k_on_disk && fdatasync(fd.get()) != 0))
      why_ = fmt::format("{}: {}", path, base::text_of_error(errno));
  }

  std::string path_, why_;
  std::vector<std::string> files_;
};

std::string text_of_file(const std::string& path) {
  std::vector<char> text(1 << 20);
  const long n = base::sys::read_small_file(path.c_str(), text.data(), text.size());
  return {text.data(), base::sys::failed(n) ? 0 : static_cast<std::size_t>(n)};
}

// Sets the environment of a job with a separate cache for these files. The user's cache is not
// used.
void set_up_child(const base::Config& config, const BenchScratch& scratch,
                  const std::string& library, std::uint64_t room) {
  for (const auto& row : base::config_rows()) unsetenv(std::string(row.variable).c_str());
  unsetenv("CUBESHIM_JOB");
  const std::pair<const char*, std::string> variables[] = {
      {"CUBESHIM_PREFIXES", scratch.path() + "/files"},
      {"CUBESHIM_NAME", fmt::format("bench-{}", getpid())},
      {"CUBESHIM_RAM", fmt::format("{}", room)},
      {"CUBESHIM_RAM_DIR", config.ram_dir},
      {"CUBESHIM_STATS", scratch.path() + "/report"},
      {"CUBESHIM_STATS_FORMAT", "json"},
      {"CUBESHIM_PREFETCH", "0"}};
  for (const auto& [name, value] : variables) setenv(name, value.c_str(), 1);
  put_in_front("LD_PRELOAD", library);
}

// Returns the exit status of the child, or -1.
int run_child(const base::Config& config, const BenchScratch& scratch, const std::string& library,
              std::uint64_t room) {
  const std::string times = scratch.path() + "/times", errors = scratch.path() + "/errors",
                    files = scratch.path() + "/files";
  const pid_t child = fork();
  if (child == 0) {
    set_up_child(config, scratch, library, room);
    const int out = ::open(times.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0600);
    const int err = ::open(errors.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (out >= 0 && err >= 0 && dup2(out, STDOUT_FILENO) >= 0 && dup2(err, STDERR_FILENO) >= 0)
      execl("/proc/self/exe", "cubeshim", "read-hits", files.c_str(), nullptr);
    _exit(127);
  }
  int status = -1;
  while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return child > 0 ? status : -1;
}

struct ServedOpens {
  std::uint64_t hits = 0;
  std::string others;  // the reasons for opens that were not served: "busy 9"
};

ServedOpens served_in(const std::string& report) {
  ServedOpens served;
  const auto json = nlohmann::json::parse(report, nullptr, false);
  const auto path = nlohmann::json::json_pointer("/hits/ram");
  if (!json.is_object() || !json.contains(path)) return served;
  served.hits = json[path].get<std::uint64_t>();
  const nlohmann::json bypassed = json.value("bypassed", nlohmann::json::object());
  for (const auto& [reason, count] : bypassed.items()) {
    if (count != 0)
      served.others += fmt::format("{}{} {}", served.others.empty() ? "" : ", ", reason,
                                   count.get<std::uint64_t>());
  }
  return served;
}

Pass parse_times(const std::string& text) {
  Pass pass;
  pass.in_flight = 1;
  std::istringstream lines(text);
  lines >> pass.seconds >> pass.bytes;
  std::uint64_t open = 0, read = 0, whole = 0;
  while (lines >> open >> read >> whole) {
    pass.open.add(open);
    pass.read.add(read);
    pass.whole.add(whole);
  }
  return pass;
}

constexpr unsigned k_hit_rounds = 4;  // the first round fetches the files; all later rounds hit

void measure_hits(const base::Config& config, const BenchScratch& scratch, BenchMachine& machine) {
  const std::string library = find_library();
  constexpr std::uint64_t k_room = 2 * k_most_bytes;
  if (library.empty() || library.find_first_of(" :") != std::string::npos) {
    machine.why_no_hits =
        "libcubeshim.so is not beside this command, or its path has a space or a colon";
  } else if (machine.ram_free < k_room + k_room / 8 || machine.memory < k_room) {
    machine.why_no_hits =
        fmt::format("{} and the memory do not have {} free", config.ram_dir, in_units(k_room));
  }
  if (!machine.why_no_hits.empty()) return;
  scratch.wait_until_trusted();
  const int status = run_child(config, scratch, library, k_room);
  const auto wanted = scratch.files().size() * (k_hit_rounds - 1);
  const ServedOpens served = served_in(text_of_file(scratch.path() + "/report"));
  if (served.hits < wanted)
    machine.unserved = fmt::format("{} of {} opens{}{}", wanted - served.hits, wanted,
                                   served.others.empty() ? "" : ": ", served.others);
  // A few files may find no room in the cache.
  if (status == 0 && served.hits >= wanted - wanted / 20) {
    machine.hits = parse_times(text_of_file(scratch.path() + "/times"));
    return;
  }
  const std::string errors = text_of_file(scratch.path() + "/errors");
  machine.why_no_hits = !errors.empty() ? errors.substr(0, errors.find('\n'))
                                        : "the library did not serve " + machine.unserved;
}

}  // namespace

BenchMachine measure_machine(const base::Config& config, std::span<const std::uint64_t> sizes) {
  BenchMachine machine;
  struct ::statfs fs {};
  if (statfs(config.ram_dir.c_str(), &fs) == 0) {
    const auto block = static_cast<std::uint64_t>(fs.f_bsize);
    machine.ram_total = static_cast<std::uint64_t>(fs.f_blocks) * block;
    machine.ram_free = static_cast<std::uint64_t>(fs.f_bavail) * block;
  }
  machine.memory = base::available_memory();
  machine.group_limit = base::memory_of_groups().limit;
  machine.cache_room = expected_room(config);
  machine.disk = config.disk_dir.empty() ? "/var/tmp" : config.disk_dir;
  BenchScratch scratch(machine.disk);
  const bool is_well = scratch.why().empty() && scratch.make_files(sizes);
  if (!is_well) {
    machine.why_no_disk = machine.why_no_hits = scratch.why();
    return machine;
  }
  const auto on_disk =
      std::span(scratch.files()).first(std::min(scratch.files().size(), k_on_disk));
  machine.cold = read_files(on_disk, {.drop_pages = true});
  machine.warm = read_files(on_disk, {});
  measure_hits(config, scratch, machine);
  return machine;
}

int read_hits(const std::string& directory) {
  const BenchSample sample =
      take_bench_sample(directory, {.files = k_most_files, .listed = k_most_files});
  Pass last;
  for (unsigned i = 0; i < k_hit_rounds; ++i) last = read_files(sample.files, {});
  fmt::print("{} {}\n", last.seconds, last.bytes);
  for (std::size_t i = 0; i < last.whole.count(); ++i)
    fmt::print("{} {} {}\n", last.open.all()[i], last.read.all()[i], last.whole.all()[i]);
  return last.failed == 0 ? 0 : 1;
}

}  // namespace cube::cli
