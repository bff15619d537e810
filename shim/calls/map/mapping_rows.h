// The table of the program's mappings of served files: where each lies, and what keeps its pages.
// For the sources of mappings.h only. Thread-safe and async-signal-safe. An entry whose `begin` a
// thread has set to 1 belongs to that thread until it publishes or frees the entry.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "shim/fd/open_file.h"

namespace cube::shim::mappings {

// A mapping, or several adjacent ones of one file. An entry is free if `begin` is 0. If `begin` is
// 1, one thread fills or changes the entry and owns its plain fields. It has no destructor, which
// would touch each row at the end of every program.
struct MappingRow {
  std::atomic<std::uintptr_t> begin{0};
  std::atomic<std::uintptr_t> end{0};
  // The end of the file's last page, as if the whole file were mapped here. If `large` is set, its
  // pages follow; `offset_of_end` is the offset of this end in that file.
  std::uintptr_t file_end = 0;
  cache::LargeFile* large = nullptr;
  std::uint64_t offset_of_end = 0;
  bool is_copy = false;          // a mapping of a copy, not of the region
  std::uint64_t copy_bytes = 0;  // size for which the copy counts
  std::size_t pieces = 0;        // pieces of a large file for which the mapping counts
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
// Publishes a claimed entry with what is left of its range.
void publish_without(MappingRow& entry, const PageRange& all, const PageRange& gone);
// Returns the entry that covers this address, which the caller may change until it publishes it.
// Sets `range` to the entry's range.
MappingRow* claim_entry_at(std::uintptr_t address, PageRange& range);
// The program no longer has any of these pages.
void remove_rows(const PageRange& gone);
// For a forked child, which has neither the pins nor the other threads of its parent.
void forget_rows();

}  // namespace cube::shim::mappings
