#include "tests/support/parity_case.h"

#include <sys/sysmacros.h>
#include <sys/wait.h>

#include <chrono>

#include "cache/base/hash.h"
#include "cache/base/sys.h"
#include "cache/region/layout.h"
#include "tests/parity/other_node.h"
#include "tests/parity/totals.h"

// A build for an old libc provides the calls that this libc lacks (tests/libc).
extern "C" __attribute__((weak)) void* newer_call(const char* name);

namespace cube::parity {
namespace {

namespace sys = base::sys;

// Files have a fixed mtime, so that results do not depend on when the test runs.
constexpr std::int64_t k_modified_seconds = 1'600'000'000;
constexpr long k_modified_nanoseconds = 123'456'789;

std::string error_name(int error) {
  const char* const name = strerrorname_np(error);
  return name != nullptr ? name : std::to_string(error);
}

void must(long result, const char* what, const std::string& path) {
  if (!sys::failed(result)) return;
  std::fprintf(stderr, "parity: cannot %s %s: %s\n", what, path.c_str(),
               error_name(static_cast<int>(-result)).c_str());
  std::abort();
}

void set_age(const std::string& path) {
  const timespec times[2] = {{k_modified_seconds, 0},
                             {k_modified_seconds, is_in_bucket() ? 0 : k_modified_nanoseconds}};
  must(sys::raw(SYS_utimensat, AT_FDCWD, sys::arg(path.c_str()), sys::arg(times),
                AT_SYMLINK_NOFOLLOW),
       "date", path);
}

// Waits until no process has the file open for writing. A thread of the library that is starting
// has copies of the program's fds until it has closed them. put() may have written through one of
// these fds, and a file that is open for writing is not cached.
void wait_for_writers(const std::string& path) {
  const long opened = sys::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (sys::failed(opened)) return;  // a mode without the right to read
  const int fd = static_cast<int>(opened);
  const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (sys::fcntl(fd, F_SETLEASE, F_RDLCK) == -EAGAIN && std::chrono::steady_clock::now() < until)
    sys::raw(SYS_sched_yield);
  sys::fcntl(fd, F_SETLEASE, F_UNLCK);
  sys::close(fd);
}

void put(const std::string& path, std::string_view content, std::size_t size, std::size_t at,
         unsigned mode) {
  long fd = sys::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  must(fd, "make", path);
  for (std::size_t done = 0; done < content.size();) {
    const long n =
        sys::pwrite(static_cast<int>(fd), content.data() + done, content.size() - done, at + done);
    must(n, "write", path);
    done += static_cast<std::size_t>(n);
  }
  must(sys::ftruncate(static_cast<int>(fd), static_cast<std::int64_t>(size)), "size", path);
  must(sys::raw(SYS_fchmod, fd, is_in_bucket() ? 0444 : mode), "chmod", path);
  sys::close(static_cast<int>(fd));
  set_age(path);
}

// Thrown to end the test's body.
struct NoObject {};
void must_be_object() {
  if (is_in_bucket()) throw NoObject();
}

std::string stat_text(struct ::stat s) {
  // A store keeps neither blocks, nor times and links of directories.
  if (is_in_bucket()) s.st_blksize = s.st_blocks = 0;
  if (is_in_bucket() && S_ISDIR(s.st_mode)) {
    s.st_size = s.st_nlink = 0;
    s.st_mtim = {};
  }
  char text[300];
  std::snprintf(
      text, sizeof text,
      "mode=%o nlink=%lu uid=%u gid=%u rdev=%lu size=%ld blksize=%ld blocks=%ld mtime=%ld.%09ld",
      s.st_mode, static_cast<unsigned long>(s.st_nlink), s.st_uid, s.st_gid,
      static_cast<unsigned long>(s.st_rdev), s.st_size, s.st_blksize, s.st_blocks, s.st_mtim.tv_sec,
      s.st_mtim.tv_nsec);
  return text;
}

}  // namespace

Case::Case(Pass pass, std::string root) : pass_(pass), root_(std::move(root)) {}

const char* Case::keep(std::string text) { return texts_.emplace_back(std::move(text)).c_str(); }
const char* Case::operator/(std::string_view name) { return keep(root_ + "/" + std::string(name)); }

std::string Case::at_origin(const std::string& path) const {
  if (!is_in_bucket()) return path;
  const std::string& base = totals().base;
  constexpr std::string_view k_tree = "/plain";  // or "/cover"
  return base + "/store" + path.substr(base.size() + k_tree.size());
}

const char* Case::file(std::string_view name, std::size_t size, unsigned mode) {
  const char* const path = *this / name;
  put(at_origin(path), content_of(name, size), size, 0, mode);
  warm_made(path, size);
  return path;
}
const char* Case::text(std::string_view name, std::string_view content) {
  const char* const path = *this / name;
  put(at_origin(path), content, content.size(), 0, 0644);
  warm_made(path, content.size());
  return path;
}
const char* Case::sparse(std::string_view name, std::size_t size, std::size_t data_at) {
  const char* const path = *this / name;
  put(at_origin(path), content_of(name, 4096), size, data_at, 0644);
  warm_made(path, size);
  return path;
}
const char* Case::dir(std::string_view name) {
  const char* const path = *this / name;
  must(sys::raw(SYS_mkdirat, AT_FDCWD, sys::arg(at_origin(path).c_str()),
                is_in_bucket() ? 0555 : 0755),
       "mkdir", path);
  return path;
}
const char* Case::link(std::string_view name, std::string_view target) {
  const char* const path = *this / name;
  must_be_object();
  must(sys::raw(SYS_symlinkat, sys::arg(std::string(target).c_str()), AT_FDCWD, sys::arg(path)),
       "symlink", path);
  set_age(path);
  return path;
}
// Calls libc's link(), because the link count of a file that may be in the cache changes.
const char* Case::hard(std::string_view name, std::string_view of) {
  const char* const path = *this / name;
  must_be_object();
  if (::link(*this / of, path) != 0) std::abort();
  warm(path);
  warm(*this / of);
  return path;
}
const char* Case::fifo(std::string_view name) {
  const char* const path = *this / name;
  must_be_object();
  must(sys::raw(SYS_mknodat, AT_FDCWD, sys::arg(path), S_IFIFO | 0644, 0), "mkfifo", path);
  return path;
}

void Case::warm_made(const char* path, std::size_t size) {
  if (size <= k_max_file) warm(path);
}

void Case::warm(const std::string& path) {
  // In the cold pass, the program gets the file from another node.
  if (pass_ == Pass::cold && is_preloaded() && has_other_node())
    totals().shared += share_by_other_node(totals().base, path);
  if (pass_ != Pass::warm) return;
  if (!is_in_bucket()) wait_for_writers(path);
  const int first = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(first, 0) << path;
  if (is_covered()) expect_served(first);
  // A large file is fetched only when it is read.
  char bytes[1 << 16];
  while (::read(first, bytes, sizeof bytes) > 0) {
  }
  ::close(first);
  if (!is_covered()) return;
  ++totals().warmed;
  if (asks_the_origin() || serves_in_blocks()) {
    const int hit = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    expect_served(hit);
    // These bytes come from memory, as the job's report shows.
    while (serves_in_blocks() && ::read(hit, bytes, sizeof bytes) > 0) {
    }
    ::close(hit);
    return;
  }
  // A hit does not touch the origin, so it works while the tree is moved away.
  const std::string away = root_ + "~";
  must(sys::raw(SYS_renameat2, AT_FDCWD, sys::arg(root_.c_str()), AT_FDCWD, sys::arg(away.c_str()),
                0),
       "move", root_);
  const int hit = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const int error = errno;
  if (hit >= 0) ::close(hit);
  must(sys::raw(SYS_renameat2, AT_FDCWD, sys::arg(away.c_str()), AT_FDCWD, sys::arg(root_.c_str()),
                0),
       "move back", away);
  EXPECT_GE(hit, 0) << "not a hit: " << path << ": " << error_name(error);
}

void Case::line(std::string text) { log_.push_back(std::move(text)); }
void Case::path(const char* label, const char* value) {
  if (value == nullptr) return line(std::string(label) + ": null");
  std::string text = value;
  for (std::size_t at = text.find(root_); at != std::string::npos; at = text.find(root_))
    text.replace(at, root_.size(), "<tree>");
  line(std::string(label) + ": " + text);
}
void Case::bytes(const char* label, const void* data, std::size_t n) {
  std::uint64_t hash = 1469598103934665603ULL;
  const auto* const p = static_cast<const unsigned char*>(data);
  for (std::size_t i = 0; i < n; ++i) hash = (hash ^ p[i]) * 1099511628211ULL;
  char text[100];
  int length = std::snprintf(text, sizeof text, ": %zu bytes, hash %016lx:", n, hash);
  for (std::size_t i = 0; i < n && i < 12; ++i)
    length += std::snprintf(text + length, sizeof text - length, " %02x", p[i]);
  line(std::string(label) + text);
}

void Case::stat(const char* label, const struct ::stat& st, const char* of, bool follow) {
  struct ::stat kernel {};
  const long error =
      sys::fstatat(AT_FDCWD, at_origin(of).c_str(), &kernel, follow ? 0 : AT_SYMLINK_NOFOLLOW);
  std::string same = "as the kernel's";
  if (sys::failed(error)) {
    same = "kernel: " + error_name(static_cast<int>(-error));
  } else if (stat_text(kernel) != stat_text(st)) {
    same = "kernel: " + stat_text(kernel);
  } else if (is_in_bucket()) {
    // An object has another inode than its file in the store's directory.
  } else if (kernel.st_ino != st.st_ino || kernel.st_dev != st.st_dev) {
    same = "another inode or device";
  } else if (kernel.st_ctim.tv_sec != st.st_ctim.tv_sec ||
             kernel.st_ctim.tv_nsec != st.st_ctim.tv_nsec) {
    same = "another ctime";
  }
  // A directory's size and the times set by the test itself differ from tree to tree. So they are
  // compared only with the kernel's answer.
  struct ::stat shown = st;
  if (S_ISDIR(st.st_mode)) shown.st_size = shown.st_blocks = 0;
  if (st.st_mtim.tv_sec != k_modified_seconds) shown.st_mtim = {};
  line(std::string(label) + ": " + stat_text(shown) + ", " + same);
}

void Case::end_note(std::string text, bool failed, int error) {
  if (failed || error != k_errno_kept)
    text += " " + (error == k_errno_kept ? std::string("errno kept") : error_name(error));
  line(std::move(text));
}

bool Case::is_covered() const { return pass_ != Pass::plain && is_preloaded(); }

void Case::expect_served(int fd) const {
  if (!is_covered()) return;
  const std::string target = raw_fd_target(fd);
  if (is_virtual()) {
    // The first open of a large file has the origin's fd (shim/calls/origin_reads.h). Each open of
    // a file that is served in blocks also has it.
    struct ::stat st {};
    const long large = serves_in_blocks() ? 2 : 1 << 20;
    const bool is_large =
        !sys::failed(sys::fstat(fd, &st)) && S_ISREG(st.st_mode) && st.st_size >= large;
    EXPECT_TRUE(target.starts_with("/proc/") || is_large)
        << "fd " << fd << " is not a placeholder but " << target;
  } else {
    EXPECT_TRUE(target.starts_with("/memfd:cubeshim"))
        << "fd " << fd << " is not a copy but " << target;
  }
}
void Case::expect_kernel(int fd) const {
  if (!is_covered() || !is_virtual()) return;
  const std::string target = raw_fd_target(fd);
  EXPECT_TRUE(target.starts_with(is_in_bucket() ? "/memfd:cubeshim" : root_))
      << "fd " << fd << " is not the kernel's but " << target;
}

int Case::in_child(const std::function<void()>& body) {
  int to_parent[2];
  must(sys::raw(SYS_pipe2, sys::arg(to_parent), O_CLOEXEC), "pipe", "");
  // Moves the pipe's fds out of the way of those that the test sees.
  const int reader = static_cast<int>(sys::fcntl(to_parent[0], F_DUPFD_CLOEXEC, 900));
  const int writer = static_cast<int>(sys::fcntl(to_parent[1], F_DUPFD_CLOEXEC, 900));
  sys::close(to_parent[0]);
  sys::close(to_parent[1]);
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    log_.clear();
    body();
    if (testing::Test::HasFailure()) line("child: an expectation failed");
    for (std::string& text : log_) {
      text += '\n';
      for (char& c : text) {
        if (c == '\n' && &c != &text.back()) c = ' ';
      }
      sys::write(writer, text.data(), text.size());
    }
    std::fflush(nullptr);
    _exit(0);
  }
  sys::close(writer);
  std::string got;
  char buffer[4096];
  for (long n = 0; (n = sys::read(reader, buffer, sizeof buffer)) > 0;)
    got.append(buffer, static_cast<std::size_t>(n));
  sys::close(reader);
  int status = -1;
  waitpid(child, &status, 0);
  for (std::size_t at = 0; at < got.size();) {
    const std::size_t end = got.find('\n', at);
    line("child: " + got.substr(at, end - at));
    at = end == std::string::npos ? got.size() : end + 1;
  }
  line("child ended: " + std::to_string(status));
  EXPECT_EQ(got.find("an expectation failed"), std::string::npos);
  return status;
}

std::string raw_fd_target(int fd) {
  char link[64], target[4096];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const long n = sys::readlink(link, target, sizeof target);
  return sys::failed(n) ? "(" + error_name(static_cast<int>(-n)) + ")"
                        : std::string(target, static_cast<std::size_t>(n));
}

bool is_preloaded() { return totals().mode != "kernel"; }
bool is_virtual() { return totals().mode == "virtual"; }
bool is_in_bucket() { return getenv("PARITY_BUCKET") != nullptr; }
bool serves_in_blocks() { return getenv("PARITY_LARGE") != nullptr; }
bool asks_the_origin() {
  const char* const consistency = getenv("CUBESHIM_CONSISTENCY");
  return consistency != nullptr && std::string_view(consistency) == "open";
}

void* symbol(const char* name) {
  void* found = dlsym(RTLD_DEFAULT, name);
  if (found == nullptr && newer_call != nullptr) found = newer_call(name);
  if (found == nullptr) {
    std::fprintf(stderr, "parity: no symbol %s\n", name);
    std::abort();
  }
  return found;
}

std::string content_of(std::string_view name, std::size_t size) {
  std::string content(size, '\0');
  std::uint64_t state = 88172645463325252ULL;
  for (const char c : name) state = (state ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  for (std::size_t i = 0; i < size; ++i) {
    if (i % 8 == 0) {
      state ^= state << 13;
      state ^= state >> 7;
      state ^= state << 17;
    }
    content[i] = static_cast<char>(state >> (i % 8 * 8));
  }
  return content;
}

namespace {

constexpr int k_watched_fds = 1200;
constexpr int k_most_shown = 8;  // differences of one pass

void close_what_is_left(Case& t, const std::vector<bool>& before) {
  // An fd that the shim has parked for its next open counts as free for the program. The shim
  // closes it before a call that makes an fd.
  ::dup(-1);
  std::string open;
  for (int fd = 0; fd < k_watched_fds; ++fd) {
    if (before[fd] || sys::failed(sys::fcntl(fd, F_GETFD))) continue;
    // This is the shim's own high fd of the region (mappings.cc). Map.AfterItsOwnFdIsGone closes
    // it.
    if (fd >= 800 && raw_fd_target(fd).starts_with("/dev/shm/cubeshim-")) continue;
    open += " " + std::to_string(fd);
    ::close(fd);
  }
  t.line("left open:" + open);
}

std::vector<bool> open_now() {
  std::vector<bool> open(k_watched_fds);
  ::dup(-1);
  for (int fd = 0; fd < k_watched_fds; ++fd) open[fd] = !sys::failed(sys::fcntl(fd, F_GETFD));
  return open;
}

}  // namespace

void run_parity(void (*body)(Case&)) {
  static int ordinal = 0;
  ++ordinal;
  ++totals().tests;
  std::vector<std::string> logs[3];
  const char* const names[3] = {"kernel", "cold", "warm"};
  for (int i = 0; i < 3; ++i) {
    const auto pass = static_cast<Pass>(i);
    char root[600];
    std::snprintf(root, sizeof root, "%s/%s/%c%04d", totals().base.c_str(),
                  i == 0 ? "plain" : "cover", "pcw"[i], ordinal);
    // The call is made through libc, because a listing of the parent directory may be cached if the
    // previous pass took some seconds.
    Case t(pass, root);
    if (is_in_bucket()) {
      t.dir("");
    } else {
      must(::mkdir(root, 0755) == 0 ? 0 : -errno, "mkdir", root);
    }
    const std::vector<bool> before = open_now();
    {
      SCOPED_TRACE(names[i]);
      try {
        body(t);
      } catch (const NoObject&) {
        [] { GTEST_SKIP() << "no bucket has links or fifos"; }();
      }
    }
    if (testing::Test::IsSkipped()) {
      ++totals().skipped;
      return;
    }
    close_what_is_left(t, before);
    if (chdir("/") != 0) ADD_FAILURE();
    logs[i] = std::move(t.log());
    if (getenv("PARITY_LOG") != nullptr) {
      for (std::size_t n = 0; n < logs[i].size(); ++n)
        std::printf("%s %zu: %s\n", names[i], n + 1, logs[i][n].c_str());
    }
  }
  for (int i = 1; i < 3; ++i) {
    int shown = 0;
    const std::size_t most = std::max(logs[0].size(), logs[i].size());
    for (std::size_t n = 0; n < most; ++n) {
      const std::string kernel = n < logs[0].size() ? logs[0][n] : "(nothing)";
      const std::string covered = n < logs[i].size() ? logs[i][n] : "(nothing)";
      ++totals().compared;
      if (kernel == covered) {
        ++totals().equal;
      } else if (++shown <= k_most_shown) {
        ADD_FAILURE() << "line " << n + 1 << "\n  kernel: " << kernel << "\n  " << names[i]
                      << ":   " << covered;
      }
    }
    if (shown > k_most_shown)
      std::printf("... and %d more lines differ (%s)\n", shown - k_most_shown, names[i]);
  }
}

}  // namespace cube::parity
