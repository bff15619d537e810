#include "cache/region/large/large_paths.h"

#include <cstring>

#include "cache/base/clock.h"

namespace cube::cache {
namespace {

// Never 0, because a tag of 0 means that a row is free.
std::uint64_t tag_of(const FileKey& key) { return key.version[0] | 1; }

constexpr std::uint64_t k_ns_of_step = 1'000'000'000;

}  // namespace

struct LargePaths::Content {
  // Monotonic clock, seconds: the time at which the path was last noted.
  std::uint64_t noted_s;
  FileStat stat;
  std::uint32_t length;
  std::uint32_t zero;
  char path[k_longest];
};

LargePathRow& LargePaths::row_of(const FileKey& key, std::uint32_t way) const {
  const std::uint32_t rows = region_->layout().large_path_rows();
  return region_->large_path_row(static_cast<std::uint32_t>((key.version[1] + way) % rows));
}

bool LargePaths::read(const LargePathRow& row, const FileKey& key, Content& content) {
  static_assert(sizeof(Content) <= sizeof row.words &&
                sizeof(Content) % sizeof(std::uint64_t) == 0);
  // Acquire: pairs with the release in note(). If another process writes the row during this read,
  // the key that is computed from the content does not match.
  if (row.tag.load(std::memory_order_acquire) != tag_of(key)) return false;
  auto* const to = reinterpret_cast<std::byte*>(&content);
  for (std::size_t i = 0; i < sizeof content / sizeof(std::uint64_t); ++i) {
    const std::uint64_t word = row.words[i].load(std::memory_order_relaxed);
    std::memcpy(to + i * sizeof word, &word, sizeof word);
  }
  return content.length <= k_longest &&
         key_of_file({content.path, content.length}, content.stat) == key;
}

bool LargePaths::note(const FileKey& key, std::string_view path, const FileStat& stat) {
  if (path.size() > k_longest) return false;
  const std::uint64_t now = base::coarse_monotonic_ns() / k_ns_of_step + 1;
  LargePathRow* chosen = nullptr;
  std::uint64_t oldest = UINT64_MAX;
  Content content;
  for (std::uint32_t way = 0; way < k_ways; ++way) {
    LargePathRow& row = row_of(key, way);
    if (read(row, key, content)) {
      if (content.noted_s != now) row.words[0].store(now, std::memory_order_relaxed);
      return true;
    }
    const std::uint64_t tag = row.tag.load(std::memory_order_relaxed);
    // The content does not match. If the tag does match, two processes have written the row at the
    // same time, and the row is replaced first, like a free row.
    const std::uint64_t noted =
        tag == 0 || tag == tag_of(key) ? 0 : row.words[0].load(std::memory_order_relaxed);
    if (noted >= oldest) continue;
    oldest = noted;
    chosen = &row;
  }
  if (chosen == nullptr) return false;
  std::memset(&content, 0, sizeof content);
  content.noted_s = now;
  content.stat = stat;
  content.length = static_cast<std::uint32_t>(path.size());
  std::memcpy(content.path, path.data(), path.size());
  const auto* const from = reinterpret_cast<const std::byte*>(&content);
  chosen->tag.store(0, std::memory_order_relaxed);
  for (std::size_t i = 0; i < sizeof content / sizeof(std::uint64_t); ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, from + i * sizeof word, sizeof word);
    chosen->words[i].store(word, std::memory_order_relaxed);
  }
  chosen->tag.store(tag_of(key), std::memory_order_release);
  return true;
}

bool LargePaths::find(const FileKey& key, Entry& name) const {
  Content content;
  for (std::uint32_t way = 0; way < k_ways; ++way) {
    if (!read(row_of(key, way), key, content)) continue;
    name.stat = content.stat;
    name.length = content.length;
    std::memcpy(name.text, content.path, content.length);
    name.text[content.length] = '\0';
    return true;
  }
  return false;
}

}  // namespace cube::cache
