// The mappings of this process, as /proc/self/maps lists them. Thread-safe and async-signal-safe.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <system_error>

#include "cache/base/unique_fd.h"

namespace cube::shim::process_maps {

struct Range {
  std::uintptr_t begin = 0, end = 0;
  std::uintptr_t bytes() const { return end - begin; }
};

struct ProgramMapping {
  Range range;
  bool is_shared_and_writable = false;
  int protection = 0;
  std::uint64_t inode = 0;
};

// Parses "BEGIN-END PERMISSIONS OFFSET DEVICE INODE", as the kernel writes it. Returns false for
// any other text.
inline bool parse(std::string_view line, ProgramMapping& mapping) {
  std::string_view fields[5];
  for (auto& field : fields) {
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos) return false;
    field = line.substr(0, space);
    line.remove_prefix(space + 1);
  }
  const char* const end = fields[0].data() + fields[0].size();
  const auto begun = std::from_chars(fields[0].data(), end, mapping.range.begin, 16);
  if (begun.ec != std::errc{} || begun.ptr == end || *begun.ptr != '-') return false;
  if (fields[1].size() != 4) return false;
  mapping.is_shared_and_writable = fields[1][1] == 'w' && fields[1][3] == 's';
  mapping.protection = (fields[1][0] == 'r' ? PROT_READ : 0) |
                       (fields[1][1] == 'w' ? PROT_WRITE : 0) |
                       (fields[1][2] == 'x' ? PROT_EXEC : 0);
  return std::from_chars(begun.ptr + 1, end, mapping.range.end, 16).ec == std::errc{} &&
         std::from_chars(fields[4].data(), fields[4].data() + fields[4].size(), mapping.inode).ec ==
             std::errc{};
}

// Calls visit(mapping) for each mapping, in the order of addresses. Returns false if the mappings
// cannot be read.
template <typename Visit>
bool visit_mappings(Visit&& visit) {
  // The fields of a line fit into this many bytes; the path after the fields can have any length.
  constexpr std::size_t k_most_fields = 128;
  const auto fd = base::open_fd("/proc/self/maps", O_RDONLY);
  if (!fd) return false;
  char block[1024];
  std::size_t kept = 0;
  bool is_in_line = false;
  while (true) {
    const long n = base::sys::read(fd->get(), block + kept, sizeof block - kept);
    if (base::sys::failed(n)) return false;
    if (n == 0) return kept == 0;
    std::string_view rest(block, kept + static_cast<std::size_t>(n));
    while (!rest.empty()) {
      const std::size_t end = rest.find('\n');
      if (!is_in_line) {
        if (end == std::string_view::npos && rest.size() < k_most_fields) break;
        ProgramMapping mapping;
        if (!parse(rest.substr(0, std::min(end, k_most_fields)), mapping)) return false;
        visit(mapping);
      }
      is_in_line = end == std::string_view::npos;
      rest.remove_prefix(is_in_line ? rest.size() : end + 1);
    }
    kept = rest.size();
    std::memmove(block, rest.data(), kept);
  }
}

}  // namespace cube::shim::process_maps
