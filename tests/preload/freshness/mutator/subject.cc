#include "tests/preload/freshness/mutator/subject.h"
#include "tests/support/mutant.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace cube::mutator {
namespace {

constexpr int k_patience_ms = 60'000;

[[noreturn]] void give_up(const std::string& what) {
  std::fprintf(stderr, "mutator: %s: %s\n", what.c_str(), strerrorname_np(errno));
  std::exit(2);
}

tests::Child start(const std::vector<std::string>& words) {
  return tests::Child([&] {
    std::vector<char*> arguments;
    for (const auto& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    execvp(arguments[0], arguments.data());
    return 127;
  });
}

dev_t device_of(const std::string& path) {
  struct stat st {};
  return stat(path.c_str(), &st) == 0 ? st.st_dev : 0;
}

// FRESHNESS_LIBRARY: another build, to show that the test notices its faults.
std::string library() {
  const char* const other = getenv("FRESHNESS_LIBRARY");
  return other != nullptr ? other : CUBESHIM_LIBRARY;
}

void add(const nlohmann::json& object, const std::string& before,
         std::map<std::string, double>& totals) {
  for (const auto& [name, value] : object.items()) {
    if (value.is_object()) add(value, before + name + ".", totals);
    if (value.is_number()) totals[before + name] += value.get<double>();
  }
}

}  // namespace

std::string Setting::name() const {
  static constexpr const char* k_promises[] = {"kernel", "open", "ttl:1", "immutable"};
  static constexpr const char* k_stores[] = {"fresh", "kept", "disk"};
  std::string text =
      std::string(k_promises[static_cast<int>(promise)]) + "/" + std::to_string(timeout_s);
  if (promise != Promise::kernel) text += std::string("/") + k_stores[static_cast<int>(store)];
  return text;
}

Subject::Subject(World& world, const Setting& setting, const std::string& base)
    : setting_(setting),
      name_(setting.name()),
      cache_name_([&] {
        std::string name = "mutator-" + std::to_string(getpid()) + "-" + name_;
        std::replace_if(
            name.begin(), name.end(), [](char c) { return c == '/' || c == ':'; }, '-');
        return name;
      }()),
      mount_(base + "/mount-" + cache_name_),
      directory_(base + "/own-" + cache_name_),
      judge_(world, setting.promise, setting.timeout_s) {
  for (const std::string& path : {mount_, directory_, directory_ + "/disk"}) {
    if (mkdir(path.c_str(), 0755) != 0) give_up(path);
  }
  std::vector<std::string> words = {LAGFS, "--foreground", "--threads", "8"};
  for (const char* cost : {"lookup", "open", "read", "getattr", "readdir", "other"}) {
    words.insert(words.end(), {std::string("--") + cost + "-us", "0"});
  }
  const std::string seconds = std::to_string(setting.timeout_s);
  words.insert(words.end(),
               {"--attr-timeout", seconds, "--entry-timeout", seconds, base + "/data", mount_});
  const dev_t before = device_of(mount_);
  // By this file, the kernel tells poll() that mounts have changed.
  pollfd mounts{open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC), POLLPRI, 0};
  daemon_ = start(words);
  while (device_of(mount_) == before) {
    if (poll(&mounts, 1, k_patience_ms) != 1) give_up("lagfs at " + mount_);
  }
  close(mounts.fd);
  begin_job();
}

Subject::~Subject() {
  end_job();
  if (geteuid() != 0 || umount2(mount_.c_str(), MNT_DETACH) != 0)
    start({"fusermount3", "-u", "-z", mount_}).wait();
  unlink(("/dev/shm/cubeshim-" + std::to_string(geteuid()) + "-" + cache_name_).c_str());
}

void Subject::hold_mount(bool holds) const {
  if (holds)
    daemon_.stop();
  else
    daemon_.send(SIGCONT);
}

std::vector<std::string> Subject::environment() const {
  std::vector<std::string> all = {"PATH=/usr/bin:/bin"};
  if (is_plain()) return all;
  static constexpr const char* k_consistency[] = {"", "open", "ttl:1", "immutable"};
  all.insert(
      all.end(),
      {"LD_PRELOAD=" + library(), "CUBESHIM_PREFIXES=" + mount_, "CUBESHIM_NAME=" + cache_name_,
       std::string("CUBESHIM_CONSISTENCY=") + k_consistency[static_cast<int>(setting_.promise)],
       "CUBESHIM_RAM=64M", "CUBESHIM_MAX_FILE=1536K", "CUBESHIM_BLOCK=64K",
       "CUBESHIM_STATS_FORMAT=json", "CUBESHIM_STRICT=1",
       "CUBESHIM_STATS=" + directory_ + "/report"});
  if (setting_.store == Store::kept) all.push_back("CUBESHIM_RAM_KEEP=1");
  if (setting_.store == Store::disk) all.push_back("CUBESHIM_DISK_DIR=" + directory_ + "/disk");
  return all;
}

void Subject::begin_job() {
  int to[2], from[2];
  if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0) give_up("pipe2");
  judge_.job_begins(now_ns());
  reader_ = tests::Child([&] {
    dup2(to[0], 0);
    dup2(from[1], 1);
    std::vector<std::string> variables = environment();
    tests::keep_mutant(variables);
    std::vector<char*> pointers;
    for (auto& variable : variables) pointers.push_back(variable.data());
    pointers.push_back(nullptr);
    char* const arguments[] = {const_cast<char*>(MUTATOR_READER), const_cast<char*>(mount_.c_str()),
                               nullptr};
    execve(MUTATOR_READER, arguments, pointers.data());
    return 127;
  });
  close(to[0]);
  close(from[1]);
  to_ = to[1];
  from_ = from[0];
  unread_.clear();
}

void Subject::end_job() {
  if (to_ < 0) return;
  close(std::exchange(to_, -1));
  if (const int status = reader_.wait(); status != 0)
    std::printf("mutator: %s: the reader ends with %d\n", name_.c_str(), status);
  close(std::exchange(from_, -1));
  const std::string path = directory_ + "/report";
  if (std::ifstream report(path); report) {
    const auto json = nlohmann::json::parse(report, nullptr, false);
    if (json.is_object()) add(json, "", totals_);
  }
  unlink(path.c_str());
}

void Subject::ask(const Ask& ask) {
  const std::string line = ask.text() + "\n";
  if (write(to_, line.data(), line.size()) != static_cast<ssize_t>(line.size()))
    give_up(name_ + " takes no question");
}

bool Subject::take(Answer& answer) {
  char bytes[1 << 16];
  while (unread_.find('\n') == std::string::npos) {
    pollfd waiting{from_, POLLIN, 0};
    if (poll(&waiting, 1, k_patience_ms) != 1) return false;
    const ssize_t n = read(from_, bytes, sizeof bytes);
    if (n <= 0) return false;
    unread_.append(bytes, static_cast<std::size_t>(n));
  }
  const std::size_t end = unread_.find('\n');
  answer = parse_answer(unread_.substr(0, end));
  unread_.erase(0, end + 1);
  return true;
}

}  // namespace cube::mutator
