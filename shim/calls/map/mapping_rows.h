// The table of the program's mappings of served files: the addresses of each mapping, and the pin
// or file that keeps its pages. Only the sources of mappings.h use it. Thread-safe and
// async-signal-safe. A thread that sets an entry's `begin` to 1 owns the entry until it publishes
// or frees it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "shim/fd/open_file.h"

namespace cube::shim::mappings {

// A mapping, or several adjacent mappings of one file. An entry whose `begin` is 0 is free. If
// `begin` is 1, one thread is filling or changing the entry, and owns its plain fields. There is no
// destructor, because it would touch every row at the end of every program.
struct MappingRow {
  std::atomic<std::uintptr_t> begin{0};
  std::atomic<std::uintptr_t> end{0};
  // The address at which the file's last page would end if the whole file were mapped here. For a
  // large file, the address at which the mapping ended when the program made it; `offset_of_end` is
  // its offset in the file.
  std::uintptr_t file_end = 0;
  cache::LargeFile* large = nullptr;
  std::uint64_t offset_of_end = 0;
  bool is_copy = false;          // maps a copy, not the region
  std::uint64_t copy_bytes = 0;  // bytes that the copy counts for
  std::size_t pieces = 0;        // pieces of a large file that it shows
  int protection = 0, flags = 0;
  cache::Pin::Kept pin;
};
static_assert(std::is_trivially_destructible_v<MappingRow>);

struct PageRange {
  std::uintptr_t begin = 0, end = 0;
  bool is_empty() const { return begin >= end; }
};

constexpr std::uint64_t round_up(std::uint64_t n) {
  return (n + cache::k_page - 1) / cache::k_page * cache::k_page;
}

// Returns an entry to fill, or null if none is free.
MappingRow* take_entry();
void free_entry(MappingRow& entry);
void publish(MappingRow& entry, const PageRange& range);
// Makes another entry for the same file.
void copy_entry(const MappingRow& from, MappingRow& to);
// Removes `gone` from a claimed entry, whose range is `all`. Publishes the rest (in two entries, if
// two parts are left), or frees the entry if nothing is left.
void publish_without(MappingRow& entry, const PageRange& all, const PageRange& gone);
// Claims the entry that covers this address and returns it. The caller can change the entry until
// publish(). Sets `range` to the entry's range.
MappingRow* claim_entry_at(std::uintptr_t address, PageRange& range);
// Removes these pages, which the program no longer has, from all entries.
void remove_rows(const PageRange& gone);
// Call this in a forked child, which has neither the pins nor the other threads of its parent.
void forget_rows();

}  // namespace cube::shim::mappings
