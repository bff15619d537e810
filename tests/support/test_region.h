// Regions, caches and records for tests. Each region has a unique name, and its file is removed at
// the end. As in the library, a Region lives as long as its process. A second attach in the same
// process would take over the slot, as after exec, so tests fork other processes (child.h).
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "cache/base/hash.h"
#include "cache/file_cache.h"
#include "cache/record/record_hash.h"
#include "cache/region/lanes.h"
#include "cache/region/ram/ram_tier.h"
#include "cache/region/region.h"

namespace cube::tests {

inline constexpr std::uint64_t k_mib = 1 << 20;

inline std::string unique_name() {
  static int count = 0;
  return "test-" + std::to_string(getpid()) + "-" + std::to_string(++count);
}

inline std::string region_path(const std::string& directory, const std::string& name) {
  return directory + "/cubeshim-" + std::to_string(geteuid()) + "-" + name;
}

inline bool exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

// Keeps the object reachable, so that leak checkers do not report it.
inline void never_freed(const void* object) {
  static auto* const objects = new std::vector<const void*>;
  objects->push_back(object);
}

inline cache::Region* attach(const cache::RegionOptions& options, std::string* why_not = nullptr) {
  std::string why;
  const auto region = cache::Region::attach(options, why);
  if (why_not != nullptr) *why_not = why;
  if (!region) return nullptr;
  never_freed(*region);
  return *region;
}

// Options of a region with a unique name. When the process that made this object destroys it, the
// region's file is removed.
struct RegionName {
  cache::RegionOptions options;
  pid_t owner = getpid();

  explicit RegionName(std::uint64_t bytes = 16 * k_mib, const std::string& directory = "/dev/shm",
                      const std::string& name = unique_name()) {
    options.directory = directory;
    options.name = name;
    options.is_percent = false;
    options.size = bytes;
    options.job = base::current_process();
  }
  RegionName(const RegionName&) = delete;
  RegionName& operator=(const RegionName&) = delete;
  ~RegionName() {
    if (getpid() == owner) unlink(path().c_str());
  }
  std::string path() const { return region_path(options.directory, options.name); }
};

// A region to which this process is attached.
struct TestRegion : RegionName {
  cache::Region* region = nullptr;

  explicit TestRegion(std::uint64_t bytes = 16 * k_mib, const std::string& directory = "/dev/shm",
                      const std::string& name = unique_name())
      : RegionName(bytes, directory, name) {
    std::string why;
    region = attach(options, &why);
    if (region == nullptr) {
      ADD_FAILURE() << "no region: " << why;
      std::fflush(nullptr);
      _exit(98);
    }
  }
  ~TestRegion() {
    if (getpid() == owner) region->detach();
  }
  cache::Region* operator->() const { return region; }
  cache::Region& operator*() const { return *region; }
};

inline base::Config config_for(const cache::RegionOptions& options) {
  base::Config config =
      base::parse_config([](const char*) -> const char* { return nullptr; }).config;
  config.ram_dir = options.directory;
  config.name = options.name;
  config.ram.is_percent = options.is_percent;
  config.ram.value = options.size;
  config.ram_keep = options.keep;
  return config;
}

inline cache::FileCache* attach_cache(const base::Config& config, const base::ProcessId& job) {
  std::string why;
  const auto cache = cache::FileCache::attach(config, job, true, why);
  if (!cache) {
    std::fprintf(stderr, "no cache: %s\n", why.c_str());
    return nullptr;
  }
  never_freed(*cache);
  return *cache;
}

// A counter of this process, including the counts of hits in its lanes.
inline std::uint64_t counted(cache::FileCache& cache, base::Counter counter) {
  base::Totals totals;
  cache::add_stats_of(cache.region(), cache.region().own_slot(), totals);
  return totals[counter];
}

// A new cache to which this process is attached.
struct TestCache : RegionName {
  base::Config config;
  cache::FileCache* cache = nullptr;

  explicit TestCache(std::uint64_t bytes = 16 * k_mib, void (*change)(base::Config&) = nullptr)
      : RegionName(bytes) {
    config = config_for(options);
    if (change != nullptr) change(config);
    cache = attach_cache(config, options.job);
    if (cache == nullptr) _exit(98);
  }
  ~TestCache() {
    if (getpid() == owner) cache->detach();
  }
  cache::FileCache* operator->() const { return cache; }
  std::uint64_t count(base::Counter counter) const { return counted(*cache, counter); }
};

inline cache::OpenRequest request_for(const std::string& path, int flags = O_RDONLY) {
  return {.key = path, .path = path.c_str(), .flags = flags};
}

inline std::string_view bytes_of(const cache::Record& record) {
  return {reinterpret_cast<const char*>(record.data()), record.data_size};
}

inline bool is_sound(const cache::Region& region, const cache::Record& record) {
  const std::uint64_t left =
      region.layout().file_bytes - region.offset_of(reinterpret_cast<const std::byte*>(&record));
  return cache::header_is_sound(record, left) && cache::data_is_sound(record);
}

// Returns a plausible stat of a regular file with that many bytes. The inode follows from the path.
inline cache::FileStat stat_for(std::string_view path, std::uint64_t size) {
  cache::FileStat stat{};
  stat.inode = base::hash_path(path);
  stat.size = size;
  stat.mode = S_IFREG | 0644;
  stat.links = 1;
  stat.device_major = 7;
  return stat;
}

inline cache::RecordContent content_for(std::string_view path, std::uint64_t size) {
  return {.path = path,
          .stat = stat_for(path, size),
          .physical = true,
          .fetched_ns = 1'700'000'000'000'000'000ULL,
          .verified_ns = 1};
}

inline base::Result<cache::Pin> publish(cache::RamTier& tier, cache::RamTier::Reservation&& room,
                                        const cache::RecordContent& content) {
  auto pin = tier.publish(room, content);
  if (pin && !tier.confirm(std::move(room), *pin)) return base::fail(ESTALE);
  return pin;
}

inline base::Result<cache::Pin> put(cache::RamTier& tier, std::string_view path,
                                    std::string_view data) {
  auto room = tier.reserve(path.size(), data.size());
  if (!room) return base::fail(room.error().value);
  data.copy(reinterpret_cast<char*>(room->data()), data.size());
  return publish(tier, std::move(*room), content_for(path, data.size()));
}

inline cache::Pin find(const cache::RamTier& tier, std::string_view path) {
  return tier.find(path, base::hash_path(path));
}

// Returns the number of slots of the whole index, including tables that have no memory yet.
inline std::uint64_t index_slots(const cache::Region& region) {
  std::uint64_t slots = 0;
  for (const std::uint32_t buckets : region.layout().bucket_count)
    slots += std::uint64_t{buckets} * cache::IndexBucket::k_slots;
  return slots;
}
// Visits every slot that has memory.
template <typename Visit>
void for_each_index_slot(cache::Region& region, Visit&& visit) {
  for (std::uint32_t t = 0; t < region.header().index_tables.load(); ++t) {
    for (std::uint32_t b = 0; b < region.layout().bucket_count[t]; ++b) {
      for (auto& slot : region.index_table(t)[b].slots) visit(slot);
    }
  }
}

// Returns bytes that follow from a path and a generation. Each reader can check them without asking
// the writer.
inline std::string content_of(std::string_view path, std::uint64_t generation, std::size_t size) {
  std::string text(size, '\0');
  std::uint64_t x = base::hash_path(path) + generation * 0x9e3779b97f4a7c15ULL;
  for (std::size_t i = 0; i < size; ++i) {
    if (i % 8 == 0) x = x * 6364136223846793005ULL + 1442695040888963407ULL;
    text[i] = static_cast<char>(x >> (8 * (i % 8)));
  }
  return text;
}

}  // namespace cube::tests
