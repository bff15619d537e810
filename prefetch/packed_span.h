// Files that follow each other in a pack, to be read with one request: a request costs the same for one of them as for all.
// They are looked up by the index alone; what the bytes do not answer (links, directories, what is damaged, a second path of
// the same hash) is to be fetched by itself. Thread safety: an object belongs to one thread.
#pragma once

#include <string_view>

#include "cache/pack/pack_mount.h"

namespace cube::prefetch {

class PackedSpan {
 public:
  static constexpr unsigned k_most_files = 64;
  // So that what is wanted next never waits for long, and what is read fits into a processor's caches.
  static constexpr std::uint64_t k_most_bytes = 1 << 20;
  // What nobody has asked for and is read all the same: less than another request would cost.
  static constexpr std::uint64_t k_most_gap = 16 << 10;

  // With this file alone. False: it is fetched by itself, if it is there at all.
  bool begin(const cache::PackMounts& packs, std::string_view path, std::uint64_t max_file);
  // One that lies close behind, or has no room in this span.
  enum class Add : std::uint8_t { added, no_room, elsewhere };
  Add add(std::string_view path);
  void drop_last() { --files_; }
  unsigned files() const { return files_; }

  // Their bytes. Null: no memory, or the read failed, which it will tell again for each of them.
  const std::byte* read(cache::PackScratch& scratch) const;
  // The n-th of them, out of what read() gave.
  base::Result<void> take(unsigned n, std::string_view path, const std::byte* bytes, cache::PackMount::Content& content) const;

 private:
  std::uint64_t end() const { return slots_[files_ - 1].offset + slots_[files_ - 1].bytes; }

  const cache::PackMount* pack_ = nullptr;
  unsigned files_ = 0;
  cache::PackSlot slots_[k_most_files];
};

}  // namespace cube::prefetch
