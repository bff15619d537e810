#include "tests/preload/freshness/events.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace cube::freshness {
namespace {

#define MUST(condition)                                                    \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::fprintf(stderr, "events.cc:%d: %s: %s\n", __LINE__, #condition, \
                   strerrorname_np(errno));                                \
      _exit(97);                                                           \
    }                                                                      \
  } while (false)

constexpr char k_first[] = "the first content of the file";
constexpr char k_second[] = "another content, of that size";
static_assert(sizeof k_first == sizeof k_second);

void write_to(const std::string& path, const char* bytes, int flags) {
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC | flags, 0644);
  MUST(fd >= 0);
  MUST(write(fd, bytes, std::strlen(bytes)) == static_cast<ssize_t>(std::strlen(bytes)));
  MUST(close(fd) == 0);
}
// Sets an old time, because a recently written file is not cached if files may change.
void set_time(const std::string& path, time_t seconds = 1'600'000'000) {
  const timespec times[2] = {{seconds, 0}, {seconds, 0}};
  MUST(utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
}
void make_old(const std::string& path, const char* bytes) {
  write_to(path, bytes, O_CREAT | O_TRUNC);
  set_time(path);
}
void make_directory(const std::string& path) { MUST(mkdir(path.c_str(), 0755) == 0); }
void rename_to(const std::string& from, const std::string& to) {
  MUST(rename(from.c_str(), to.c_str()) == 0);
}
timespec changed_at(const std::string& path) {
  struct stat st {};
  MUST(stat(path.c_str(), &st) == 0);
  return st.st_ctim;
}

void one_file(const std::string& data) { make_old(data + "/f", k_first); }
// The new file has the same size and time, so its stat differs only in the inode.
void one_file_and_the_next(const std::string& data) {
  one_file(data);
  make_old(data + "/next", k_second);
}
void two_links(const std::string& data) {
  one_file(data);
  MUST(link((data + "/f").c_str(), (data + "/g").c_str()) == 0);
}
void nothing(const std::string& /*data*/) {}
void two_directories(const std::string& data) {
  for (const char* name : {"/v1", "/v2"}) make_directory(data + name);
  make_old(data + "/v1/f", k_first);
  make_old(data + "/v2/f", k_second);
}
void a_link_to_a_directory(const std::string& data) {
  two_directories(data);
  MUST(symlink("v1", (data + "/current").c_str()) == 0);
}

// Writes bytes and sets the time back. The ctime advances with the kernel's tick, so this repeats
// until the tick has passed.
void write_and_put_time_back(const std::string& data) {
  const std::string path = data + "/f";
  const timespec before = changed_at(path);
  timespec now = before;
  while (now.tv_sec == before.tv_sec && now.tv_nsec == before.tv_nsec) {
    write_to(path, k_second, 0);
    set_time(path);
    now = changed_at(path);
  }
}

std::string see_directory(DIR* directory) {
  std::vector<std::string> names;
  while (const dirent* const entry = readdir(directory)) names.emplace_back(entry->d_name);
  closedir(directory);
  std::sort(names.begin(), names.end());
  std::string all = "holds";
  for (const auto& name : names) all += " " + name;
  return all;
}

std::string error_of(const char* call) { return std::string(call) + " " + strerrorname_np(errno); }

}  // namespace

const std::vector<Event>& events() {
  static const std::vector<Event> all = {
      {"written", "f", one_file,
       [](const std::string& data) { write_to(data + "/f", "CHANGED", 0); }},
      {"rewritten", "f", one_file,
       [](const std::string& data) { write_to(data + "/f", "shorter", O_CREAT | O_TRUNC); }},
      {"grown", "f", one_file,
       [](const std::string& data) { write_to(data + "/f", " and more of it", O_APPEND); }},
      {"truncated", "f", one_file,
       [](const std::string& data) { MUST(truncate((data + "/f").c_str(), 9) == 0); }},
      {"written_and_time_put_back", "f", one_file, write_and_put_time_back},
      {"written_by_another_link", "f", two_links,
       [](const std::string& data) { write_to(data + "/g", "CHANGED", 0); }},
      {"renamed_over", "f", one_file_and_the_next,
       [](const std::string& data) { rename_to(data + "/next", data + "/f"); }},
      {"renamed_away", "f", one_file,
       [](const std::string& data) { rename_to(data + "/f", data + "/away"); }},
      {"removed", "f", one_file,
       [](const std::string& data) { MUST(unlink((data + "/f").c_str()) == 0); }},
      {"touched", "f", one_file,
       [](const std::string& data) { set_time(data + "/f", 1'600'000'001); }},
      {"mode_changed", "f", one_file,
       [](const std::string& data) { MUST(chmod((data + "/f").c_str(), 0600) == 0); }},
      {"link_added", "f", one_file,
       [](const std::string& data) {
         MUST(link((data + "/f").c_str(), (data + "/g").c_str()) == 0);
       }},
      {"directory_replaced", "v1/f", two_directories,
       [](const std::string& data) {
         rename_to(data + "/v1", data + "/v0");
         rename_to(data + "/v2", data + "/v1");
       }},
      {"symbolic_link_switched", "current/f", a_link_to_a_directory,
       [](const std::string& data) {
         MUST(symlink("v2", (data + "/next").c_str()) == 0);
         rename_to(data + "/next", data + "/current");
       }},
      {"created", "f", nothing, one_file},
      {"entry_added", "v1", two_directories,
       [](const std::string& data) { make_old(data + "/v1/g", k_first); }},
      {"entry_removed", "v1", two_directories,
       [](const std::string& data) { MUST(unlink((data + "/v1/f").c_str()) == 0); }},
  };
  return all;
}

const Event& event_named(const std::string& name) {
  const auto found = std::find_if(events().begin(), events().end(),
                                  [&](const Event& e) { return name == e.name; });
  MUST(found != events().end());
  return *found;
}

std::string see_path(const std::string& path) {
  std::string seen;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat st {};
  // A regular file is not passed to opendir, because the kernel would answer, and its answer would
  // correct the cache.
  if (fd >= 0 && fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
    close(fd);
    if (DIR* const directory = opendir(path.c_str()); directory != nullptr)
      return see_directory(directory);
    return error_of("opendir");
  }
  seen = fd < 0 ? error_of("open") : see_fd(fd);
  char text[200];
  if (fd >= 0) {
    MUST(fstat(fd, &st) == 0 && close(fd) == 0);
    std::snprintf(text, sizeof text, ", fstat %o %lu %ld.%09ld", st.st_mode, st.st_nlink,
                  st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
    seen += text;
  }
  if (stat(path.c_str(), &st) != 0)
    return seen + ", " + error_of("stat") + (access(path.c_str(), R_OK) == 0 ? ", access" : "");
  std::snprintf(text, sizeof text, ", stat %o %lu %ld %lu %ld.%09ld %ld.%09ld", st.st_mode,
                st.st_nlink, st.st_size, st.st_ino, st.st_mtim.tv_sec, st.st_mtim.tv_nsec,
                st.st_ctim.tv_sec, st.st_ctim.tv_nsec);
  return seen + text + (access(path.c_str(), R_OK) == 0 ? ", access" : "");
}

std::string see_fd(int fd) {
  char bytes[200];
  const ssize_t n = pread(fd, bytes, sizeof bytes, 0);
  struct stat st {};
  MUST(n >= 0 && fstat(fd, &st) == 0);
  return std::to_string(st.st_size) + " bytes \"" +
         std::string(bytes, static_cast<std::size_t>(n)) + "\"";
}

}  // namespace cube::freshness
