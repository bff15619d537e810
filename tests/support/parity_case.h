// The parity harness. A test is a body that makes calls on files below a directory and logs the
// results, line by line. It runs three times in one process. The first directory is not covered by
// a prefix, so the kernel is the reference. The second is covered, and no process has opened its
// files yet (cold). The third is covered, and all its files are in the cache (warm). This is proven
// for each file: it can be opened while the directory does not exist. The three logs must be equal
// line by line.
//
//   PARITY(Read, StopsAtTheEnd) {
//     // Logs the text of the call, its result and errno.
//     const int fd = CALL(open(t.file("a", 100), O_RDONLY));
//     ...
//   }
// Files are made by raw system calls, so that the library under test has not seen them before. Use
// each name only one time.
#pragma once

#include <dlfcn.h>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace cube::parity {

enum class Pass { plain, cold, warm };
inline constexpr int k_errno_kept = 4242;
inline constexpr std::size_t k_max_file = 2 << 20;  // CUBESHIM_MAX_FILE of the runs

class Case {
 public:
  Case(Pass pass, std::string root);

  // Returns the text of a path below the tree, and does not access it.
  const char* operator/(std::string_view name);
  const std::string& root() const { return root_; }

  // These functions make files and links by raw system calls; a file's bytes follow from its name.
  const char* file(std::string_view name, std::size_t size = 100, unsigned mode = 0644);
  const char* text(std::string_view name, std::string_view content);
  const char* sparse(std::string_view name, std::size_t size, std::size_t data_at);
  const char* dir(std::string_view name);
  const char* link(std::string_view name, std::string_view target);  // the target verbatim
  const char* hard(std::string_view name, std::string_view of);
  const char* fifo(std::string_view name);
  // In the warm pass, opens a file so that later opens are hits. `file`, `text` and `sparse` call
  // it.
  void warm(const std::string& path);

  // ---- the log
  void line(std::string text);
  void path(const char* label, const char* value);  // without the path of the tree
  void bytes(const char* label, const void* data, std::size_t n);
  // Logs all fields except atime and inode, and checks that they equal the kernel's current stat of
  // `of`.
  void stat(const char* label, const struct ::stat& st, const char* of, bool follow = true);
  template <typename T>
  T note(const char* what, T value) {
    const int error = errno;
    std::string text = std::string(what) + " = ";
    bool failed = false;
    if constexpr (std::is_pointer_v<T>) {
      failed = value == nullptr || reinterpret_cast<void*>(value) == MAP_FAILED;
      text += value == nullptr ? "null" : failed ? "MAP_FAILED" : "pointer";
    } else {
      failed = value == static_cast<T>(-1);
      text += std::to_string(value);
    }
    end_note(std::move(text), failed, error);
    errno = error;
    return value;
  }
  // Ignores errno on success, because stdio may change it.
  template <typename T>
  T note_loosely(const char* what, T value, bool failed) {
    const int error = errno;
    std::string text = std::string(what) + " = ";
    if constexpr (std::is_pointer_v<T>) {
      text += value == nullptr ? "null" : "pointer";
    } else {
      text += std::to_string(value);
    }
    end_note(std::move(text), failed, failed ? error : k_errno_kept);
    errno = error;
    return value;
  }

  // True if the shim is loaded and this is the covered tree.
  bool is_covered() const;
  Pass pass() const { return pass_; }
  // In covered passes, expect_served() proves that the fd is not the kernel's own file, and
  // expect_kernel() that it is.
  void expect_served(int fd) const;
  void expect_kernel(int fd) const;
  // Runs the body in a forked child, and appends the child's log lines to this log. Returns the
  // wait status.
  int in_child(const std::function<void()>& body);

  std::vector<std::string>& log() { return log_; }

 private:
  void end_note(std::string text, bool failed, int error);
  void warm_made(const char* path, std::size_t size);
  // Returns the path at which the file is made. For a bucket, it is in the store's directory.
  std::string at_origin(const std::string& path) const;
  const char* keep(std::string text);

  Pass pass_;
  std::string root_;
  std::vector<std::string> log_;
  std::deque<std::string> texts_;
};

void run_parity(void (*body)(Case&));

// Returns the path that the kernel reports for the fd, without the shim.
std::string raw_fd_target(int fd);
bool is_preloaded();
bool is_virtual();
// True if each open revalidates (CUBESHIM_CONSISTENCY=open), so that changes by other processes are
// seen.
bool asks_the_origin();
// True if every file of two or more bytes is large.
bool serves_in_blocks();
// True if the covered tree is a bucket. The reference is then a read-only mount of the directory
// whose files the store has as objects. Tests that make something other than objects are skipped.
bool is_in_bucket();
// True if libc has at least this version.
inline bool is_libc_from(const char* version) {
  return strverscmp(gnu_get_libc_version(), version) >= 0;
}
// Returns libc's function (or the shim's) by name. Ends the test process if there is none.
void* symbol(const char* name);
template <typename F>
F* function(const char* name) {
  return reinterpret_cast<F*>(symbol(name));
}
// Deterministic bytes of a file.
std::string content_of(std::string_view name, std::size_t size);

}  // namespace cube::parity

#define PARITY(subject, behaviour)                                                         \
  static void parity_##subject##_##behaviour(::cube::parity::Case& t);                     \
  TEST(subject, behaviour) { ::cube::parity::run_parity(parity_##subject##_##behaviour); } \
  static void parity_##subject##_##behaviour([[maybe_unused]] ::cube::parity::Case& t)

// Makes the call and logs its text, its result, and errno (a success must leave errno unchanged).
#define CALL(...) (errno = ::cube::parity::k_errno_kept, t.note(#__VA_ARGS__, (__VA_ARGS__)))
// For calls that return null, EOF or similar on failure. errno counts only on failure.
#define STDIO(failure, ...)                                                       \
  ([&] {                                                                          \
    errno = ::cube::parity::k_errno_kept;                                         \
    const auto stdio_value_ = (__VA_ARGS__);                                      \
    return t.note_loosely(#__VA_ARGS__, stdio_value_, stdio_value_ == (failure)); \
  }())
