// Fetches one directory entry from the origin: the stat and bytes of a file, or the target of a
// link. A Crew makes many such fetches at a time, because each request to a slow mount takes long.
// Thread safety: any thread may call fetch_entry; a Crew belongs to one thread.
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

// The bytes of larger files are not fetched (`large_file`).
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
  int error = 0;  // set if `unreadable`
  FileStat stat{};
  std::unique_ptr<std::byte[]> data;  // the bytes of a file, or the target of a link
  std::size_t size = 0;
};

// `type`: the type of the name in the directory's listing, or DT_UNKNOWN. `old`: the stat that an
// earlier run has packed, or null. If the stat is unchanged, the result is `same`.
FetchedEntry fetch_entry(int directory, const char* name, std::uint8_t type, const FileStat* old);
// Opens a file in the same way as fetch_entry.
base::Result<base::UniqueFd> open_entry(int directory, const char* name);

// Whether a packed stat and a stat of the origin describe the same file, with the same bytes and
// rights.
bool is_same_entry(const FileStat& packed, const FileStat& origin);

// Threads that share the parts of a job. If not all threads can be created, the others do all
// parts; if none can be created, the caller does.
class Crew {
 public:
  explicit Crew(unsigned threads);
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;
  ~Crew();
  // Calls part(0) to part(count - 1), each on one of the threads. Returns when all calls have
  // returned.
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
