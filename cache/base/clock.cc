#include "cache/base/clock.h"

#include <dlfcn.h>

#include <algorithm>
#include <charconv>

#include "cache/base/sys.h"

namespace cube::base {
namespace {

int ask_kernel(clockid_t id, timespec* t) {
  return static_cast<int>(sys::raw(SYS_clock_gettime, id, sys::arg(t)));
}

__attribute__((constructor)) void find_clock() {
  // Looks up clock_gettime in libc itself, because RTLD_NEXT may find the function of another
  // library. dlopen opens no file, because libc is already loaded.
  void* const libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
  if (libc == nullptr) return;
  if (void* const found = dlsym(libc, "clock_gettime"); found != nullptr)
    g_clock_gettime.store(reinterpret_cast<int (*)(clockid_t, timespec*)>(found),
                          std::memory_order_relaxed);
  dlclose(libc);
}

}  // namespace

constinit std::atomic<int (*)(clockid_t, timespec*)> g_clock_gettime{ask_kernel};
constinit ClockShifts g_clock_shifts;

ClockShifts parse_clock_shifts(std::string_view text) {
  ClockShifts shifts;
  const auto next = [&text]() -> std::string_view {
    constexpr std::string_view k_space = " \t\n";
    text.remove_prefix(std::min(text.size(), text.find_first_not_of(k_space)));
    const std::string_view word = text.substr(0, text.find_first_of(k_space));
    text.remove_prefix(word.size());
    return word;
  };
  const auto number = [](std::string_view word) {
    std::int64_t value = 0;
    std::from_chars(word.data(), word.data() + word.size(), value);
    return static_cast<std::uint64_t>(value);
  };
  while (true) {
    const std::string_view clock = next(), seconds = next(), nanoseconds = next();
    if (nanoseconds.empty()) return shifts;
    const std::uint64_t shift = number(seconds) * 1'000'000'000ULL + number(nanoseconds);
    if (clock == "monotonic") shifts.monotonic_ns = shift;
    if (clock == "boottime") shifts.boot_ns = shift;
  }
}

void find_clock_shifts() {
  static constinit std::atomic<bool> is_found{false};
  if (is_found.exchange(true, std::memory_order_relaxed)) return;
  struct ::stat own {
  }, for_children{};
  // The inode of the machine's first time namespace, which is the same on every machine. The clocks
  // of this namespace are not shifted.
  constexpr std::uint64_t k_first_namespace = 0xeffffffa;
  if (sys::failed(sys::fstatat(AT_FDCWD, "/proc/self/ns/time", &own, 0)) ||
      own.st_ino == k_first_namespace)
    return;
  // timens_offsets describes the time namespace that future children will have. If the process has
  // called unshare, it is not in that namespace itself.
  if (sys::failed(sys::fstatat(AT_FDCWD, "/proc/self/ns/time_for_children", &for_children, 0)) ||
      own.st_ino != for_children.st_ino) {
    return;
  }
  char text[256];
  const long n = sys::read_small_file("/proc/self/timens_offsets", text, sizeof text);
  if (!sys::failed(n)) g_clock_shifts = parse_clock_shifts({text, static_cast<std::size_t>(n)});
}

}  // namespace cube::base
