#include "shim/calls/map/mapping_rows.h"

#include <algorithm>
#include <utility>

#include "shim/calls/map/mapped_copy.h"
#include "shim/calls/map/mappings.h"

namespace cube::shim::mappings {

constinit std::atomic<int> g_count{0};

namespace {

constexpr std::size_t k_entries = 4096;
constinit MappingRow g_entries[k_entries];
constinit std::atomic<std::size_t> g_used{0};  // entries below this may be in use
// By default, the kernel allows a process 65,530 mappings. Each piece is a mapping, and so is each
// gap between two pieces. The remaining mappings are left for the program.
constexpr std::size_t k_most_pieces = 4096;
constinit std::atomic<std::size_t> g_pieces{0};

}  // namespace

MappingRow* take_entry() {
  for (std::size_t i = 0; i < k_entries; ++i) {
    std::uintptr_t free = 0;
    if (!g_entries[i].begin.compare_exchange_strong(free, 1, std::memory_order_acquire)) continue;
    std::size_t used = g_used.load(std::memory_order_relaxed);
    while (used <= i && !g_used.compare_exchange_weak(used, i + 1, std::memory_order_acq_rel)) {
    }
    return &g_entries[i];
  }
  return nullptr;
}

void free_entry(MappingRow& entry) {
  cache::Pin(std::exchange(entry.pin, {})).release();
  if (entry.large != nullptr) std::exchange(entry.large, nullptr)->end();
  mapped_copy::drop(std::exchange(entry.copy_bytes, 0));
  g_pieces.fetch_sub(std::exchange(entry.pieces, 0), std::memory_order_relaxed);
  entry.begin.store(0, std::memory_order_release);
}

void publish(MappingRow& entry, const PageRange& range) {
  entry.end.store(range.end, std::memory_order_relaxed);
  entry.begin.store(range.begin, std::memory_order_release);
}

void copy_entry(const MappingRow& from, MappingRow& to) {
  to.file_end = from.file_end;
  to.large = from.large != nullptr ? from.large->share() : nullptr;
  to.offset_of_end = from.offset_of_end;
  to.is_copy = from.is_copy;
  to.protection = from.protection;
  to.flags = from.flags;
  to.pin = cache::Pin::duplicate_of(from.pin).keep();
  to.copy_bytes = from.copy_bytes;
  mapped_copy::add(to.copy_bytes);
}

void publish_without(MappingRow& entry, const PageRange& all, const PageRange& gone) {
  const PageRange head{all.begin, std::min(all.end, gone.begin)},
      tail{std::max(all.begin, gone.end), all.end};
  if (head.is_empty() && tail.is_empty()) {
    free_entry(entry);
    g_count.fetch_sub(1, std::memory_order_acq_rel);
    return;
  }
  if (!head.is_empty() && !tail.is_empty()) {
    if (MappingRow* const other = take_entry(); other != nullptr) {
      copy_entry(entry, *other);
      publish(*other, tail);
      g_count.fetch_add(1, std::memory_order_acq_rel);
    }
  }
  publish(entry, head.is_empty() ? tail : head);
}

MappingRow* claim_entry_at(std::uintptr_t address, PageRange& range) {
  for (std::size_t i = 0; i < g_used.load(std::memory_order_acquire); ++i) {
    MappingRow& entry = g_entries[i];
    std::uintptr_t from = entry.begin.load(std::memory_order_acquire);
    if (from <= 1 || address < from || address >= entry.end.load(std::memory_order_relaxed))
      continue;
    if (!entry.begin.compare_exchange_strong(from, 1, std::memory_order_acq_rel)) continue;
    range = {from, entry.end.load(std::memory_order_relaxed)};
    return &entry;
  }
  return nullptr;
}

void remove_rows(const PageRange& gone) {
  const std::size_t used = g_used.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < used; ++i) {
    MappingRow& entry = g_entries[i];
    std::uintptr_t from = entry.begin.load(std::memory_order_acquire);
    if (from <= 1 || from >= gone.end || entry.end.load(std::memory_order_relaxed) <= gone.begin)
      continue;
    if (!entry.begin.compare_exchange_strong(from, 1, std::memory_order_acq_rel)) continue;
    publish_without(entry, {from, entry.end.load(std::memory_order_relaxed)}, gone);
  }
}

void forget_rows() {
  int count = 0;
  for (std::size_t i = 0; i < g_used.load(std::memory_order_relaxed); ++i) {
    MappingRow& entry = g_entries[i];
    entry.pin = {};
    entry.copy_bytes = 0;
    // If `begin` is 1, another thread of the parent was changing the entry. That thread does not
    // exist in the child.
    if (entry.begin.load(std::memory_order_relaxed) > 1) {
      ++count;
    } else {
      entry.begin.store(0, std::memory_order_relaxed);
    }
  }
  g_count.store(count, std::memory_order_relaxed);
}

std::size_t take_pieces(std::size_t most) {
  std::size_t before = g_pieces.load(std::memory_order_relaxed), taken = 0;
  do {
    taken = std::min(most, k_most_pieces - std::min(before, k_most_pieces));
  } while (!g_pieces.compare_exchange_weak(before, before + taken, std::memory_order_relaxed));
  return taken;
}

void give_pieces_back(std::size_t count) { g_pieces.fetch_sub(count, std::memory_order_relaxed); }

}  // namespace cube::shim::mappings
