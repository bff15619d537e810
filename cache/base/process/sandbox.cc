#include "cache/base/process/sandbox.h"

#include <cerrno>
#include <charconv>
#include <string_view>

#include "cache/base/memory/off_stack.h"
#include "cache/base/sys.h"

namespace cube::base {
namespace {

// The value of a field in a status file of /proc; 0: there is no such field.
unsigned long field_of(std::string_view status, std::string_view name) {
  const std::size_t at = status.find(name);
  if (at == std::string_view::npos) return 0;
  const std::string_view rest = status.substr(at + name.size());
  unsigned long value = 0;
  std::from_chars(rest.data(), rest.data() + rest.size(), value);
  return value;
}

// The text lies in an OffStack, because a thread may have a stack of only 16 KB.
struct Status {
  OffStack room;
  std::string_view read(const char* path) {
    const long n = room ? sys::read_small_file(path, room.data(), OffStack::k_bytes) : -ENOMEM;
    return sys::failed(n) ? std::string_view()
                          : std::string_view(room.data(), static_cast<std::size_t>(n));
  }
};

}  // namespace

bool may_be_sandboxed() {
  Status own;
  return own.read("/proc/thread-self/status").find("\nSeccomp:\t0\n") == std::string_view::npos;
}

bool is_clone_known_to_be_allowed() {
  Status own, parents;
  const std::string_view status = own.read("/proc/thread-self/status");
  if (field_of(status, "\nThreads:\t") > 1) return true;
  const unsigned long filters = field_of(status, "\nSeccomp_filters:\t"),
                      parent = field_of(status, "\nPPid:\t");
  if (filters == 0 || parent == 0) return false;
  char path[64] = "/proc/";
  const auto end = std::to_chars(path + 6, path + 32, parent).ptr;
  std::string_view("/status").copy(end, 8);
  return field_of(parents.read(path), "\nSeccomp_filters:\t") == filters;
}

}  // namespace cube::base
