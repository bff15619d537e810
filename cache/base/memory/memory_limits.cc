#include "cache/base/memory/memory_limits.h"

#include <sys/statfs.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <string_view>

#include "cache/base/memory/off_stack.h"
#include "cache/base/memory/own_place.h"
#include "cache/base/sys.h"
#include "cache/base/words.h"

namespace cube::base {
namespace {

constexpr std::uint64_t k_unknown = UINT64_MAX;

std::uint64_t number_at(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  std::uint64_t value = 0;
  return std::from_chars(text.data(), text.data() + text.size(), value).ec == std::errc{}
             ? value
             : k_unknown;
}

// The beginning of a file. The text is in a mapping, because a thread may have a stack of only 16
// KB.
class FileText {
 public:
  explicit FileText(const char* path) {
    const long at = sys::mmap(own_place(k_room), k_room, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (sys::failed(at)) return;
    text_ = reinterpret_cast<char*>(at);
    size_ = sys::read_small_file(path, text_, k_room);
  }
  ~FileText() {
    if (text_ != nullptr) sys::munmap(text_, k_room);
  }
  FileText(const FileText&) = delete;
  FileText& operator=(const FileText&) = delete;
  explicit operator bool() const { return !sys::failed(size_); }
  std::string_view view() const { return {text_, static_cast<std::size_t>(size_)}; }

 private:
  static constexpr std::size_t k_room = 8192;
  char* text_ = nullptr;
  long size_ = -ENOMEM;
};

std::uint64_t number_in(const char* path) {
  char text[64];
  const long n = sys::read_small_file(path, text, sizeof text);
  return sys::failed(n) ? k_unknown : number_at({text, static_cast<std::size_t>(n)});
}

std::uint64_t available_on_machine() {
  const FileText text("/proc/meminfo");
  if (!text) return k_unknown;
  const std::string_view all = text.view();
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

// The path root + group + "/" + file. The path is in an OffStack, because a thread may have a stack
// of only 16 KB.
class GroupPath {
 public:
  GroupPath(std::string_view root, std::string_view group, std::string_view file) {
    if (!room_ || root.size() + group.size() + file.size() + 2 > OffStack::k_bytes) return;
    char* to = room_.data();
    for (const std::string_view part : {root, group, std::string_view("/"), file}) {
      for (const char c : part) {
        *to++ = c;
        // Keeps the compiler from replacing the loop by a memcpy, which a sanitizer of the host
        // would intercept.
        asm volatile("" : : : "memory");
      }
    }
    *to = '\0';
    is_whole_ = true;
  }
  // "": the path is too long, or there is no memory.
  const char* c_str() const { return is_whole_ ? room_.data() : ""; }

 private:
  OffStack room_;
  bool is_whole_ = false;
};

// The sum of two lines of memory.stat, or the value of one line if both names are the same.
std::uint64_t sum_in_stat(std::string_view root, std::string_view group, std::string_view one,
                          std::string_view other) {
  const GroupPath path(root, group, "memory.stat");
  const FileText text(path.c_str());
  if (!text) return 0;
  std::string_view rest = text.view();
  std::uint64_t sum = 0;
  while (!rest.empty()) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    const std::string_view name = take_word(line);
    if (name != one && name != other) continue;
    const std::uint64_t bytes = number_at(line);
    if (bytes != k_unknown) sum += bytes;
  }
  return sum;
}

struct GroupFiles {
  const char *limit, *usage, *inactive, *active, *shared;
};
constexpr GroupFiles k_v1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                             "total_inactive_file", "total_active_file", "total_shmem"};
constexpr GroupFiles k_v2 = {"memory.max", "memory.current", "inactive_file", "active_file",
                             "shmem"};

// Lowers the figures in `memory` to the limits of the group and of its ancestors.
void take_limits_of(std::string_view root, std::string_view group, const GroupFiles& files,
                    GroupMemory& memory) {
  while (true) {
    const std::uint64_t most = number_in(GroupPath(root, group, files.limit).c_str());
    // "max" in v2, and a huge number in v1, mean that there is no limit.
    if (most < k_unknown / 4) {
      const std::uint64_t used = number_in(GroupPath(root, group, files.usage).c_str());
      // The group's page cache counts as used, but the kernel frees the cache when memory is
      // needed.
      const std::uint64_t cached = sum_in_stat(root, group, files.inactive, files.active);
      const std::uint64_t left =
          left_of(most, used == k_unknown ? used : used - std::min(used, cached));
      memory.limit = std::min(memory.limit, most);
      if (left < memory.left) {
        memory.left = left;
        memory.shared = sum_in_stat(root, group, files.shared, files.shared);
      }
    }
    if (group.empty()) return;
    group = group.substr(0, group.rfind('/'));
  }
}

}  // namespace

// Each line of /proc/self/cgroup is "ID:CONTROLLERS:GROUP". In the line for v2, CONTROLLERS is
// empty.
GroupMemory memory_of_groups() {
  GroupMemory memory;
  const FileText text("/proc/self/cgroup");
  if (!text) return memory;
  std::string_view rest = text.view();
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
      take_limits_of("/sys/fs/cgroup", group, k_v2, memory);
    } else if (controllers.find("memory") != std::string_view::npos) {
      take_limits_of("/sys/fs/cgroup/memory", group, k_v1, memory);
    }
  }
  return memory;
}

std::uint64_t available_memory() { return memory_left().left; }

MemoryLeft memory_left() {
  const GroupMemory groups = memory_of_groups();
  const std::uint64_t on_machine = available_on_machine();
  const auto missing = [](std::uint64_t left) {
    return k_memory_left_alone - std::min(left, k_memory_left_alone);
  };
  return {.left = std::min(on_machine, groups.left),
          .missing = std::max(missing(on_machine), std::min(missing(groups.left), groups.shared))};
}

Result<SharedRoom> shared_room(const char* path) {
  struct ::statfs fs {};
  const long error = sys::raw(SYS_statfs, sys::arg(path), sys::arg(&fs));
  if (sys::failed(error)) return fail(static_cast<int>(-error));
  const auto block = static_cast<std::uint64_t>(fs.f_bsize);
  return SharedRoom{.total = static_cast<std::uint64_t>(fs.f_blocks) * block,
                    .free = static_cast<std::uint64_t>(fs.f_bavail) * block};
}

}  // namespace cube::base
