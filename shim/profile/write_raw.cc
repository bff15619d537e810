#include "shim/profile/write_raw.h"

#include <fmt/core.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>

#include "cache/base/clock.h"
#include "cache/base/error_text.h"
#include "cache/base/log.h"
#include "cache/base/sys.h"
#include "cache/report/write_report.h"

namespace cube::shim::profile {
namespace {

namespace sys = base::sys;
constinit char g_raw_pattern[PATH_MAX] = "";
constinit std::atomic<bool> g_is_writing{false};

class RawWriter {
 public:
  RawWriter(int fd, Tables& tables) : fd_(fd), room_(tables.buffer.data()) {}

  template <typename... Args>
  void put(fmt::format_string<Args...> format, const Args&... args) {
    constexpr std::size_t k_longest = 8192;
    if (Tables::k_buffer - size_ < k_longest) flush();
    size_ += std::min(fmt::vformat_to_n(room_ + size_, k_longest, fmt::string_view(format),
                                        fmt::make_format_args(args...))
                          .size,
                      k_longest);
  }
  void put_text(std::string_view text) {
    for (const char c : text) {
      if (Tables::k_buffer - size_ < 2) flush();
      const char letter = c == '\n' ? 'n' : c == '\t' ? 't' : c == '\\' ? '\\' : '\0';
      if (letter != '\0') room_[size_++] = '\\';
      room_[size_++] = letter != '\0' ? letter : c;
    }
  }
  template <typename Counts>
  void put_counts(const Counts& counts) {
    const char* between = "\t";
    for (const auto& count : counts) {
      put("{}{}", between, count.load(k_relaxed));
      between = ",";
    }
  }
  void flush() {
    const long n = size_ != 0 && error_ == 0 ? base::write_quietly(fd_, {room_, size_}) : 0;
    if (sys::failed(n)) error_ = static_cast<int>(-n);
    if (error_ == 0 && n != static_cast<long>(size_)) error_ = ENOSPC;
    size_ = 0;
  }
  // Returns 0 if everything was written.
  int error() const { return error_; }

 private:
  const int fd_;
  char* const room_;
  std::size_t size_ = 0;
  int error_ = 0;
};

// Writes the executable mappings from /proc/self/maps. Readers of the raw file use these mappings
// to convert addresses into names.
void put_maps(RawWriter& out, std::array<char, 2 * PATH_MAX>& room) {
  const long fd = sys::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (sys::failed(fd)) return;
  std::size_t size = 0;
  for (long n = 1; n > 0;) {
    n = sys::read(static_cast<int>(fd), room.data() + size, room.size() - size);
    if (n > 0) size += static_cast<std::size_t>(n);
    std::size_t at = 0;
    while (const auto* const end =
               static_cast<const char*>(std::memchr(room.data() + at, '\n', size - at))) {
      const std::string_view line(room.data() + at,
                                  static_cast<std::size_t>(end - room.data()) - at);
      if (line.find(" r-x") != std::string_view::npos && line.find('/') != std::string_view::npos) {
        out.put("map\t");
        out.put_text(line);
        out.put("\n");
      }
      at += line.size() + 1;
    }
    if (at == 0 && size == room.size()) size = 0;  // skips the line, which is too long
    std::memmove(room.data(), room.data() + at, size - at);
    size -= at;
  }
  sys::close(static_cast<int>(fd));
}

void put_site(RawWriter& out, const Tables& tables, std::size_t number) {
  const SiteRow& site = tables.sites[number];
  out.put("site\t{}\t{}\t", number, k_kind_names[site.kind]);
  out.put_text(text_at(tables, site.example.load(k_relaxed)));
  const char* between = "\t";
  if (site.stack.natives == 0) out.put("\t-");
  for (std::uint32_t i = 0; i < site.stack.natives; ++i) {
    out.put("{}{:x}", between, site.stack.native[i]);
    between = ",";
  }
  between = "\t";
  if (site.stack.pythons == 0) out.put("\t-");
  for (std::uint32_t i = 0; i < site.stack.pythons; ++i) {
    out.put("{}{}", between, site.stack.python[i]);
    between = ",";
  }
  out.put_counts(site.counts);
  out.put_counts(site.latency);
  if (site.kind == 0) {
    out.put_counts(site.opens);
  } else {
    out.put("\t-");
  }
  out.put("\n");
}

void put_all(RawWriter& out, Tables& tables, const base::Config& config) {
  const std::uint64_t begin_ns = base::monotonic_ns();
  out.put("{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\n", k_raw_head, k_raw_version, sys::getpid(),
          sys::raw(SYS_getppid), tables.start_ns, begin_ns, config.profile_every,
          config.observe ? 1 : 0);
  put_maps(out, tables.maps);
  for (std::size_t i = 0; i < Tables::k_codes; ++i) {
    const CodeRow& code = tables.codes[i];
    if (code.ready.load(std::memory_order_acquire) == 0) continue;
    out.put("code\t{}\t{}\t", i, code.line);
    out.put_text(text_at(tables, code.name));
    out.put("\t");
    out.put_text(text_at(tables, code.file));
    out.put("\n");
  }
  for (std::size_t i = 0; i < Tables::k_sites; ++i) {
    if (tables.sites[i].ready.load(std::memory_order_acquire) != 0) put_site(out, tables, i);
  }
  for (std::size_t level = 0; level < k_bin_levels; ++level) {
    for (std::size_t i = 0; i < k_bins; ++i) {
      const Bin& bin = tables.bins[level][i];
      const std::uint64_t busy = bin.busy_ns.load(k_relaxed);
      if (busy != 0)
        out.put("bin\t{}\t{}\t{}\t{}\n", level, tables.start_ns / bin_width(level) + i, busy,
                bin.calls.load(k_relaxed));
    }
  }
  for (const FileRow& file : tables.files) {
    if (file.counts[k_file_opens].load(k_relaxed) == 0) continue;
    out.put("file\t{:x}", file.key.load(k_relaxed));
    out.put_counts(file.counts);
    out.put("\n");
  }
  out.put("dropped");
  out.put_counts(tables.dropped);
  out.flush();
  tables.cost[k_write_ns].store(base::monotonic_ns() - begin_ns, k_relaxed);
  out.put("\ncost");
  out.put_counts(tables.cost);
  out.put("\nend\n");
  out.flush();
}

// Containers that share a directory may have processes with the same PID that end at the same time.
// So this function locks the file. Returns 0 if the file is now locked, or if the file system has
// no locks.
int take_turn(int fd) {
  constexpr std::uint64_t k_longest_ns = 1'000'000'000;
  constexpr timespec k_pause{0, 2'000'000};
  struct ::stat st {};
  if (sys::failed(sys::fstat(fd, &st)) || !S_ISREG(st.st_mode)) return 0;
  const std::uint64_t until = base::monotonic_ns() + k_longest_ns;
  while (sys::raw(SYS_flock, fd, LOCK_EX | LOCK_NB) == -EWOULDBLOCK) {
    if (base::monotonic_ns() > until) return EWOULDBLOCK;
    sys::raw(SYS_nanosleep, sys::arg(&k_pause), 0);
  }
  return 0;
}

}  // namespace

void forget_writer() { g_is_writing.store(false, std::memory_order_relaxed); }

void note_raw_file(const base::Config& config) {
  char directory[PATH_MAX] = "";
  if (config.profile.front() != '/' && sys::failed(sys::getcwd(directory, sizeof directory)))
    return;
  // Each process writes its own file. Only a device or a pipe (/dev/null) is shared.
  struct ::stat st {};
  const bool is_no_file = !sys::failed(sys::fstatat(AT_FDCWD, config.profile.c_str(), &st, 0)) &&
                          !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
  const bool has_number = is_no_file || config.profile.find("%p") != std::string::npos;
  const auto end =
      fmt::format_to_n(g_raw_pattern, sizeof g_raw_pattern - 1, "{}{}{}{}", directory,
                       directory[0] != '\0' ? "/" : "", config.profile, has_number ? "" : ".%p");
  *end.out = '\0';
  setenv("CUBESHIM_PROFILE", g_raw_pattern, 1);
}

bool write_raw(Tables& tables, const base::Config& config) {
  const auto is_used = [](const SiteRow& site) {
    return site.ready.load(std::memory_order_acquire) != 0;
  };
  if (std::none_of(tables.sites.begin(), tables.sites.end(), is_used)) return true;
  // One thread may end the process while another thread makes an exec.
  if (g_is_writing.exchange(true, std::memory_order_acquire)) return false;
  const auto file = cache::open_report_file(g_raw_pattern,
                                            static_cast<std::uint32_t>(sys::getpid()), tables.path);
  int error = file ? take_turn(file->get()) : file.error().value;
  if (error == 0) {
    RawWriter out(file->get(), tables);
    put_all(out, tables, config);
    error = out.error();
  }
  if (error != 0)
    base::log(base::LogLevel::warn, "CUBESHIM_PROFILE: cannot write {}: {}", +tables.path,
              base::text_of_error(error));
  g_is_writing.store(false, std::memory_order_release);
  return true;
}

}  // namespace cube::shim::profile
