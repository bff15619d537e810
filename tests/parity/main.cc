// Runs itself again as the program under test: with the library preloaded (PARITY_MODE=virtual or
// real), its own directories and its own cache name. Then the outer process checks that the job's
// report shows the proven hits, and that the region is removed. Only the outer process can check
// this, after the program has ended.
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "tests/parity/other_node.h"
#include "tests/parity/totals.h"
#include "tests/support/parity_case.h"

namespace cube::parity {

Totals& totals() {
  static Totals* const totals = new Totals;
  return *totals;
}

namespace {

bool uses_ring() { return getenv("PARITY_RING") != nullptr; }

bool is_copied(const std::string& path, std::size_t size) {
  std::ofstream(path) << content_of(path, size);
  const int fd = open(path.c_str(), O_RDONLY);
  void* const at = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  char name[64];
  std::snprintf(name, sizeof name, "%lx-", reinterpret_cast<unsigned long>(at));
  std::ifstream maps("/proc/self/maps");
  bool found = false;
  for (std::string line; std::getline(maps, line);) {
    // The name distinguishes a copy from a mapping of the region's file or of the origin's file,
    // which is in one of the test's directories.
    found = found || (line.starts_with(name) && line.find("/cubeshim-") == std::string::npos);
  }
  munmap(at, size);
  return found;
}

// A file passes through the ring only if the library's writer thread has run in the last two
// seconds. On a busy machine, the thread can start late, and can be late again between two files.
bool passes_through_ring(const std::string& directory) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(120);
  // Each round uses new files, because a file that has passed through the ring is not fetched again
  // immediately.
  for (int i = 0; std::chrono::steady_clock::now() < until; ++i) {
    const std::string number = std::to_string(i);
    if (is_copied(directory + "/small" + number, 100) &&
        is_copied(directory + "/large" + number, 40000))
      return true;
    std::this_thread::yield();
  }
  return false;
}

// Fills the resident memory, so that the files of the tests pass through the ring. Returns false if
// they do not.
bool fill_memory(const std::string& directory) {
  constexpr std::pair<int, std::size_t> k_files[] = {
      {14, 1000 << 10}, {6, 60 << 10}, {8, 8 << 10}, {8, 2 << 10}};
  int number = 0;
  for (const auto& [count, size] : k_files) {
    for (int i = 0; i < count; ++i) {
      const std::string path = directory + "/fill" + std::to_string(number++);
      std::ofstream(path) << std::string(size, 'f');
      close(open(path.c_str(), O_RDONLY));
    }
  }
  if (passes_through_ring(directory)) return true;
  std::printf("parity: FAILED: files are not in the ring\n");
  return false;
}

int run_tests(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  Totals& all = totals();
  if (const char* const mode = getenv("PARITY_MODE"); mode != nullptr) all.mode = mode;
  if (const char* const base = getenv("PARITY_BASE"); base != nullptr) all.base = base;
  umask(022);
  if (uses_ring() && is_preloaded() && !all.base.empty() && !fill_memory(all.base + "/cover"))
    return 1;
  const int result = RUN_ALL_TESTS();
  if (!all.base.empty()) {
    std::printf(
        "parity: %zu of %zu cases equal (%s: %zu tests, %zu of them skipped, %zu hits proven)\n",
        all.equal, all.compared, all.mode.c_str(), all.tests, all.skipped, all.warmed);
    std::fflush(stdout);
    std::ofstream(all.base + "/warmed") << all.warmed;
    std::ofstream(all.base + "/shared") << all.shared;
  }
  return result;
}

long number_after(const std::string& text, const std::string& key) {
  const std::size_t at = text.find("\"" + key + "\":");
  return at == std::string::npos ? -1
                                 : std::strtol(text.c_str() + at + key.size() + 3, nullptr, 10);
}

std::string content(const std::string& path) {
  std::ifstream file(path);
  std::stringstream all;
  all << file.rdbuf();
  return all.str();
}

std::string region_of(const std::string& name) {
  return "/dev/shm/cubeshim-" + std::to_string(geteuid()) + "-" + name;
}

// Returns 0 if the report and the region are as they should be. Prints the report of a failed test.
int check_what_is_left(const std::string& base, const std::string& name, bool has_failed) {
  int wrong = 0;
  const std::string report = content(base + "/report.json");
  const long warmed = std::atol(content(base + "/warmed").c_str());
  const bool in_blocks = getenv("PARITY_LARGE") != nullptr;
  const long hits =
      number_after(report, "ram") +
      (in_blocks ? number_after(report.substr(report.find("\"blocks\":")), "hits") : 0);
  std::printf("parity: the job's report: %ld hits, %ld misses, %ld materialized\n", hits,
              number_after(report, "misses"), number_after(report, "materialized"));
  if (has_failed) std::printf("parity: %s\n", report.c_str());
  if (has_other_node())
    std::printf("parity: %ld of %s files came from the cluster\n", number_after(report, "cluster"),
                content(base + "/shared").c_str());
  if (hits < warmed) {
    std::printf("parity: FAILED: %ld hits were proven, the report has %ld: %s\n", warmed, hits,
                report.c_str());
    wrong = 1;
  }
  if (has_other_node()) unlink(region_of(name + "-other").c_str());
  const std::string region = region_of(name);
  // A gateway uses the region for some more seconds.
  if (!is_in_bucket() && access(region.c_str(), F_OK) == 0) {
    std::printf("parity: FAILED: the region is still there: %s\n", region.c_str());
    unlink(region.c_str());
    wrong = 1;
  }
  return wrong;
}

// Sets the environment of the program under test and of the other node.
void set_up_library(const std::string& base, const std::string& name, const std::string& mode) {
  const char* const library = getenv("PARITY_LIBRARY");
  setenv("LD_PRELOAD", library != nullptr ? library : CUBESHIM_LIBRARY, 1);
  if (is_in_bucket()) {
    const std::string prefix = getenv("PARITY_BUCKET") + base.substr(base.rfind('/')) + "/store";
    setenv("CUBESHIM_BUCKETS", (base + "/cover=" + prefix).c_str(), 1);
  } else {
    setenv("CUBESHIM_PREFIXES", (base + "/cover").c_str(), 1);
  }
  setenv("CUBESHIM_MODE", mode.c_str(), 1);
  setenv("CUBESHIM_NAME", name.c_str(), 1);
  setenv("CUBESHIM_RAM", uses_ring() ? "24M" : "256M", 1);
  if (uses_ring()) {
    setenv("CUBESHIM_RING", "50%", 1);
    setenv("CUBESHIM_DISK_DIR", (base + "/disk").c_str(), 1);
  }
  // In one variant of run_parity.py, even files of a few bytes are served in blocks.
  setenv("CUBESHIM_MAX_FILE", "2M", 0);
  setenv("CUBESHIM_STATS", (base + "/report.json").c_str(), 1);
  setenv("CUBESHIM_STATS_FORMAT", "json", 1);
}

// Mounts the store's directory read-only as the reference for a bucket. Only this process and its
// children see the mount.
void mount_store(const std::string& base) {
  const std::string store = base + "/store", plain = base + "/plain";
  std::filesystem::create_directory(store);
  if (unshare(CLONE_NEWNS) != 0 ||
      mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      mount(store.c_str(), plain.c_str(), nullptr, MS_BIND, nullptr) != 0 ||
      mount(nullptr, plain.c_str(), nullptr, MS_BIND | MS_REMOUNT | MS_RDONLY, nullptr) != 0)
    std::perror("parity: mount"), std::abort();
}

int run_under_test(char** argv) {
  const char* const mode_text = getenv("PARITY_MODE");
  const std::string mode = mode_text != nullptr ? mode_text : "kernel";
  const char* const where = getenv("PARITY_TMP");
  std::string base = std::string(where != nullptr ? where : "/tmp") + "/cubeshim-parity-XXXXXX";
  if (mkdtemp(base.data()) == nullptr || chmod(base.c_str(), 0755) != 0)
    return std::perror("mkdtemp"), 1;
  std::filesystem::create_directory(base + "/plain");
  std::filesystem::create_directory(base + "/cover");
  std::filesystem::create_directory(base + "/disk");
  if (is_in_bucket()) mount_store(base);
  const std::string name = "parity-" + std::to_string(getpid());
  if (mode != "kernel") {
    set_up_library(base, name, mode);
    if (has_other_node()) start_other_node(base, name);
  }
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setenv("PARITY_BASE", base.c_str(), 1);
    // The tests rely on the numbers of fds. So only 0, 1 and 2 stay open, no matter what this
    // program has inherited.
    close_range(3, ~0U, 0);
    unsetenv("CUBESHIM_JOB");
    execv("/proc/self/exe", argv);
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  int result = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (WIFSIGNALED(status)) std::printf("parity: FAILED: ended by signal %d\n", WTERMSIG(status));
  if (mode != "kernel") {
    if (WIFEXITED(status)) {
      result |= check_what_is_left(base, name, result != 0);
    } else {
      unlink(region_of(name).c_str());
    }
  }
  if (is_in_bucket()) umount2((base + "/plain").c_str(), MNT_DETACH);
  std::error_code error;
  std::filesystem::remove_all(base, error);
  return result;
}

}  // namespace
}  // namespace cube::parity

int main(int argc, char** argv) {
  bool lists = false;
  for (int i = 1; i < argc; ++i)
    lists = lists || std::string_view(argv[i]).starts_with("--gtest_list_tests");
  if (const char* const other = getenv("PARITY_OTHER"); other != nullptr)
    return cube::parity::run_other_node(other);
  if (lists || getenv("PARITY_BASE") != nullptr) return cube::parity::run_tests(argc, argv);
  return cube::parity::run_under_test(argv);
}
