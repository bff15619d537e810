// Fetches the thing that the origin holds under a name: a file's stat and bytes, or the target of a
// link, as of one moment. Many at a time, for each question to a slow mount takes its time. Thread
// safety: fetch_entry any thread; Crew one thread.
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
  std::unique_ptr<std::byte[]> data;  // of a file or a link
  std::size_t size = 0;
};

// `old`: what an earlier run had; `same` where it is still so. `type` is what the directory says,
// DT_UNKNOWN where nothing.
FetchedEntry fetch_entry(int directory, const char* name, std::uint8_t type, const FileStat* old);
// For a file: opened as fetch_entry does.
base::Result<base::UniqueFd> open_entry(int directory, const char* name);

// The same file with the same bytes and rights, of two stats as a pack has them or the origin gives
// them.
bool is_same_entry(const FileStat& packed, const FileStat& origin);

// Threads that do the parts of a job together; where there can be no more threads, fewer, and the
// caller itself where there is none.
class Crew {
 public:
  explicit Crew(unsigned threads);
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;
  ~Crew();
  // part(0) ... part(count - 1), by any of them; comes back when all are done.
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
