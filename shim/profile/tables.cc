#include "shim/profile/tables.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "cache/base/clock.h"
#include "cache/base/hash.h"
#include "cache/base/memory/own_place.h"
#include "cache/base/sys.h"

namespace cube::shim::profile {

constinit std::atomic<Tables*> g_tables{nullptr};

namespace {

namespace sys = base::sys;
constexpr std::uint32_t k_magic = 0x70726f66;

void make_ready(Tables& tables) {
  tables.start_ns = base::monotonic_ns();
  tables.string_end.store(1, std::memory_order_relaxed);  // 0 means "none"
  tables.magic.store(k_magic, std::memory_order_release);
}

}  // namespace

Tables* make_tables() {
  const long at = sys::mmap(base::own_place(sizeof(Tables)), sizeof(Tables), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (sys::failed(at)) return nullptr;
  auto* const tables = reinterpret_cast<Tables*>(at);  // NOLINT(performance-no-int-to-ptr)
  // A child must not report its parent's calls again.
  if (sys::failed(sys::madvise(tables, sizeof(Tables), MADV_WIPEONFORK))) {
    sys::munmap(tables, sizeof(Tables));
    return nullptr;
  }
  make_ready(*tables);
  return tables;
}

void start_over(Tables& tables) {
  sys::madvise(&tables, sizeof(Tables), MADV_DONTNEED);
  make_ready(tables);
}

std::uint32_t keep_text(Tables& tables, std::string_view text) {
  const auto size = static_cast<std::uint32_t>(std::min<std::size_t>(text.size(), 4095));
  std::uint32_t at = tables.string_end.load(std::memory_order_relaxed);
  do {
    if (at == 0 || size + 1 > Tables::k_strings - at) {
      add(tables.dropped[k_no_text], 1);
      return 0;
    }
  } while (!tables.string_end.compare_exchange_weak(at, at + size + 1, std::memory_order_relaxed));
  std::memcpy(&tables.strings[at], text.data(), size);
  return at;
}

SiteRow* site_of(Tables& tables, std::uint32_t kind, const Stack& stack) {
  std::uint64_t key = base::hash_bytes(stack.native.data(), stack.natives * sizeof stack.native[0]);
  key = key * 31 + base::hash_bytes(stack.python.data(), stack.pythons * sizeof stack.python[0]);
  key = (key ^ (key >> 29)) * 0x9e3779b97f4a7c15ULL + kind;
  bool is_new = false;
  SiteRow* const row = find_row(tables.sites, key != 0 ? key : 1, is_new);
  if (row == nullptr) {
    add(tables.dropped[k_no_site], 1);
    return nullptr;
  }
  if (is_new) {
    row->kind = kind;
    row->stack = stack;
    row->ready.store(1, std::memory_order_release);
  }
  return row;
}

FileRow* file_of(Tables& tables, std::uint64_t path_hash) {
  bool is_new = false;
  FileRow* const row = find_row(tables.files, path_hash, is_new);
  if (row == nullptr) add(tables.dropped[k_no_file], 1);
  return row;
}

void add_to_time_line(Tables& tables, std::uint64_t begin_ns, std::uint64_t end_ns) {
  constexpr std::uint64_t k_most_steps = 64;
  for (std::size_t level = 0; level < k_bin_levels; ++level) {
    const std::uint64_t width = bin_width(level), origin = tables.start_ns / width;
    if (begin_ns / width < origin) continue;
    const std::uint64_t first = begin_ns / width,
                        last = std::min(end_ns / width, first + k_most_steps);
    for (std::uint64_t i = first; i <= last && i - origin < k_bins; ++i) {
      const std::uint64_t from = std::max(begin_ns, i * width),
                          to = std::min(end_ns, (i + 1) * width);
      Bin& bin = tables.bins[level][i - origin];
      add(bin.busy_ns, to - from);
      if (i == first) add(bin.calls, 1);
    }
  }
}

}  // namespace cube::shim::profile
