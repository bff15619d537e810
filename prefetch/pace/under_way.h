// The files that are being fetched, by their place in a reader's order. Thread safety: none; the
// owner's lock guards it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace cube::prefetch {

class UnderWay {
 public:
  // Throws std::bad_alloc if there is no memory.
  void add(std::uint32_t reader, std::uint64_t sequence) { files_.push_back({reader, sequence}); }
  void leave(std::uint32_t reader, std::uint64_t sequence) {
    const auto at = std::find_if(files_.begin(), files_.end(), [&](const PlaceInOrder& file) {
      return file.reader == reader && file.sequence == sequence;
    });
    if (at == files_.end()) return;
    *at = files_.back();
    files_.pop_back();
  }
  std::size_t size() const { return files_.size(); }
  // The earliest sequence number of this reader.
  std::optional<std::uint64_t> first_of(std::uint32_t reader) const {
    std::optional<std::uint64_t> first;
    for (const PlaceInOrder& file : files_) {
      if (file.reader == reader) first = std::min(first.value_or(file.sequence), file.sequence);
    }
    return first;
  }

 private:
  struct PlaceInOrder {
    std::uint32_t reader;
    std::uint64_t sequence;
  };
  std::vector<PlaceInOrder> files_;
};

}  // namespace cube::prefetch
