#include "shim/listings.h"

#include <atomic>
#include <cstdint>

#include "cache/base/hash.h"
#include "cache/base/signal_frame.h"
#include "shim/process.h"

namespace cube::shim::listings {
namespace {

// By hash: 0 is free. A wrong one is fetched in vain at worst. What finds no place is not fetched ahead.
constexpr std::size_t k_places = 4096, k_tries = 8;
constinit std::atomic<std::uint64_t> g_listed[k_places] = {};
constinit std::atomic<std::uint32_t> g_misses{0};

// A program that lists a directory and looks into a file or two is not yet one that reads it.
constexpr std::uint32_t k_misses_that_tell = 8;

std::atomic<std::uint64_t>* find(std::uint64_t hash) {
  for (std::size_t i = 0; i < k_tries; ++i) {
    std::atomic<std::uint64_t>& place = g_listed[(hash + i) % k_places];
    if (place.load(std::memory_order_relaxed) == hash) return &place;
  }
  return nullptr;
}

}  // namespace

void note_listing(std::string_view directory) {
  const std::uint64_t hash = base::hash_path(directory);
  if (find(hash) != nullptr) return;
  for (std::size_t i = 0; i < k_tries; ++i) {
    std::uint64_t free = 0;
    if (g_listed[(hash + i) % k_places].compare_exchange_strong(free, hash, std::memory_order_relaxed)) return;
  }
}

void note_miss(cache::FileCache& cache, std::string_view file) {
  const std::string_view directory = file.substr(0, file.rfind('/'));
  std::atomic<std::uint64_t>* const place = find(base::hash_path(directory));
  if (place == nullptr) return;
  if (g_misses.fetch_add(1, std::memory_order_relaxed) + 1 < k_misses_that_tell) return;
  // It starts a thread; another miss will do.
  if (base::may_be_in_handler()) return;
  place->store(0, std::memory_order_relaxed);
  if (cache.is_full() || !cache.region().post_listing(directory)) return;
  process::start_sidecar();
}

}  // namespace cube::shim::listings
