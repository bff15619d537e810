// Files below one prefix, and a cache of whole files with a ring that is too small for all of them.
#pragma once

#include <sys/stat.h>

#include <vector>

#include "tests/support/ring_files.h"
#include "tests/support/temp_dir.h"

namespace cube::tests {

struct SmallCache {
  static constexpr std::size_t k_bytes = 60'000;
  TempDir dir;
  TestCache cache{24 * k_mib, [](base::Config& config) { config.block = 0; }};
  std::vector<std::string> paths;

  explicit SmallCache(int files) {
    for (int i = 0; i < files; ++i) {
      const std::string name = "f" + std::to_string(i);
      paths.push_back(dir.write(name, content_of(dir / name, 0, k_bytes)));
    }
  }
  SmallCache(const SmallCache&) = delete;
  SmallCache& operator=(const SmallCache&) = delete;
  // A killed leader leaves its socket behind.
  ~SmallCache() { unlink((cache.path() + ".sock").c_str()); }
  // Sets up a job whose list names all files. Threads fetch the files through a ring of 8 MB.
  void list_all(unsigned depth) {
    std::string list;
    for (const auto& path : paths) list += path + "\n";
    base::Config& config = cache.config;
    config.prefixes = {dir.path()};
    config.prefetch_list = dir.write("list", list);
    config.ring.is_percent = false;
    config.ring.value = 8 * k_mib;
    config.prefetch_depth = depth;
    config.io_engine = base::EngineKind::threads;
    cache->ahead().make_ring(config.ring);
  }
  static bool is_right(const std::string& path, std::string_view bytes) {
    return bytes == content_of(path, 0, k_bytes);
  }
  std::uint64_t bytes_of_all() const { return paths.size() * k_bytes; }

  struct Counts {
    int opens = 0, hits = 0, wrong = 0;
  };
  // Opens the file like a program.
  void open(cache::FileCache& by, const std::string& path, Counts& counts) const {
    ++counts.opens;
    const cache::OpenOutcome outcome = by.open(request_for(path));
    if (outcome.pin) {
      ++counts.hits;
      counts.wrong += is_right(path, bytes_of(*outcome.pin)) ? 0 : 1;
    } else if (outcome.kernel_fd >= 0) {
      close(outcome.kernel_fd);
    } else {
      ++counts.wrong;
    }
  }
};

}  // namespace cube::tests
