// Fetches the state of one name at the origin: a file's stat and bytes, or the target of a link.
// Crew fetches many at a time, because each request to a slow mount takes long. Thread safety:
// fetch_entry any thread; Crew one thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "cache/base/unique_fd.h"
#include "cache/record/file_stat.h"

namespace cube::cache {

// The bytes of larger files are left out.
inline constexpr std::uint64_t k_fetched_whole = 512 << 10;

struct FetchedEntry {
  enum class What : std::uint8_t {
    file,
    large_file,
    link,
    directory,
    same,
    missing,
    special,
    unreadable,
    changing
  };
  What what = What::missing;
  int error = 0;  // of unreadable
  FileStat stat{};
  std::unique_ptr<std::byte[]> data;  // the bytes of a file, or the target of a link
  std::size_t size = 0;
};

// `type`: as the directory lists it, or DT_UNKNOWN. `old`: the stat that an earlier run had packed,
// or null; the result is `same` if it still holds.
FetchedEntry fetch_entry(int directory, const char* name, std::uint8_t type, const FileStat* old);
// Opens a file as fetch_entry does.
base::Result<base::UniqueFd> open_entry(int directory, const char* name);

// Whether a packed stat and a stat of the origin are of the same file with the same bytes and
// rights.
bool is_same_entry(const FileStat& packed, const FileStat& origin);

// Threads that share the parts of a job. If fewer threads can be created, those do all parts; if
// none can, the caller does.
class Crew {
 public:
  explicit Crew(unsigned threads);
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;
  ~Crew();
  // Calls part(0) to part(count - 1) on any of the threads; returns when all are done.
  void run(std::size_t count, const std::function<void(std::size_t)>& part);

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable is_called_, is_done_;
  const std::function<void(std::size_t)>* part_ = nullptr;
  std::size_t next_ = 0, count_ = 0, left_ = 0;
  bool is_over_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace cube::cache
