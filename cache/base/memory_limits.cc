#include "cache/base/memory_limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "cache/base/sys.h"

namespace cube::base {
namespace {

constexpr std::uint64_t k_unknown = UINT64_MAX;

std::uint64_t number_at(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  std::uint64_t value = 0;
  return std::from_chars(text.data(), text.data() + text.size(), value).ec == std::errc{} ? value : k_unknown;
}

std::uint64_t number_in(const char* path) {
  char text[64];
  const long n = sys::read_small_file(path, text, sizeof text);
  return sys::failed(n) ? k_unknown : number_at({text, static_cast<std::size_t>(n)});
}

std::uint64_t available_on_machine() {
  char text[2048];
  const long n = sys::read_small_file("/proc/meminfo", text, sizeof text);
  if (sys::failed(n)) return k_unknown;
  const std::string_view all(text, static_cast<std::size_t>(n));
  constexpr std::string_view k_label = "MemAvailable:";
  const std::size_t at = all.find(k_label);
  if (at == std::string_view::npos) return k_unknown;
  const std::uint64_t kib = number_at(all.substr(at + k_label.size()));
  return kib == k_unknown ? k_unknown : kib * 1024;
}

std::uint64_t left_of(std::uint64_t limit, std::uint64_t usage) {
  if (limit == k_unknown || usage == k_unknown) return k_unknown;
  return limit > usage ? limit - usage : 0;
}

// The group's own limit and those of the groups around it.
std::uint64_t available_in(std::string_view root, std::string_view group, const char* limit_name, const char* usage_name) {
  std::uint64_t least = k_unknown;
  while (true) {
    char limit[512], usage[512];
    *fmt::format_to_n(limit, sizeof limit - 1, "{}{}/{}", root, group, limit_name).out = '\0';
    *fmt::format_to_n(usage, sizeof usage - 1, "{}{}/{}", root, group, usage_name).out = '\0';
    least = std::min(least, left_of(number_in(limit), number_in(usage)));
    if (group.empty()) return least;
    group = group.substr(0, group.rfind('/'));
  }
}

// A line of /proc/self/cgroup is "ID:CONTROLLERS:GROUP"; in v2 ID is 0 and CONTROLLERS is empty.
std::uint64_t available_in_cgroups() {
  char text[4096];
  const long n = sys::read_small_file("/proc/self/cgroup", text, sizeof text);
  if (sys::failed(n)) return k_unknown;
  std::string_view rest(text, static_cast<std::size_t>(n));
  std::uint64_t least = k_unknown;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    std::string_view group = line.substr(second + 1);
    if (group == "/") group = {};
    if (controllers.empty()) {
      least = std::min(least, available_in("/sys/fs/cgroup", group, "memory.max", "memory.current"));
    } else if (controllers.find("memory") != std::string_view::npos) {
      least = std::min(least, available_in("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes", "memory.usage_in_bytes"));
    }
  }
  return least;
}

}  // namespace

std::uint64_t available_memory() { return std::min(available_on_machine(), available_in_cgroups()); }

}  // namespace cube::base
