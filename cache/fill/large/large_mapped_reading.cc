// LargeFile: predicts whether the program will read all of a mapped file, like a model's weights.
// If so, fetches the absent pages before the program touches them.
#include <algorithm>

#include "cache/base/readahead.h"
#include "cache/fill/large/large_file.h"
#include "cache/fill/large/weights_format.h"
#include "cache/region/large/large_pages.h"

namespace cube::cache {
namespace {

// If this part of a mapping (a tenth) was touched, the program will probably touch most of the
// rest.
constexpr std::uint64_t k_touched_part = 10;

}  // namespace

LargeFile::Reading LargeFile::reading_of(CacheParts& parts, const Range& mapped) const {
  const Advice advice = advice_.load(std::memory_order_relaxed);
  if (advice == Advice::sequential) return Reading::in_order;
  if (advice == Advice::random) return Reading::unknown;
  if (is_of_whole_format(parts)) return Reading::in_order;
  const std::uint64_t bytes = mapped.end - mapped.begin;
  // Does not count the present bytes of a mapping that is larger than all chunks together.
  if (bytes > std::uint64_t{parts.region.layout().chunk_count()} * k_chunk_bytes)
    return Reading::unknown;
  const std::uint64_t present = present_bytes(parts, mapped);
  return present >= bytes / k_touched_part && fits(parts, mapped, present) ? Reading::whole
                                                                           : Reading::unknown;
}

bool LargeFile::is_of_whole_format(CacheParts& parts) const {
  const auto head = find(chunks(parts), 0);
  return head.has_all({0, 1}) &&
         is_weights_format({head.data(), std::min(k_chunk_page, stat_.size)}, stat_.size);
}

bool LargeFile::fits(CacheParts& parts, const Range& range, std::uint64_t present) const {
  return range.end - range.begin <= present + chunks(parts).free_bytes();
}

void LargeFile::ask_mapped(CacheParts& parts, const base::Mapping& mapping, std::uint64_t begin,
                           const Range& range) const {
  const Chunks chunks = this->chunks(parts);
  for (std::uint64_t at = range.begin, end = 0; at < range.end; at = end) {
    end = std::min(range.end, (at / k_chunk_bytes + 1) * k_chunk_bytes);
    const PageRun all = pages_of(at, end);
    const auto claim = find(chunks, chunk_of(at));
    constexpr auto k_most_at_once =
        static_cast<std::uint32_t>(base::k_one_readahead / k_chunk_page);
    for (PageRun run = claim.next_absent(all, k_most_at_once); !run.is_empty();
         run = claim.next_absent({run.end, all.end}, k_most_at_once))
      base::sys::madvise(mapping.data() + (byte_of(chunk_of(at), run.first) - begin),
                         run.count() * k_chunk_page, MADV_WILLNEED);
  }
}

std::optional<std::uint64_t> LargeFile::bring_mapped(CacheParts& parts,
                                                     const base::Mapping& mapping,
                                                     std::uint64_t begin, const Range& range,
                                                     int region_fd) {
  const std::uint64_t block = parts.rules.block, last = std::min(range.end, stat_.size);
  std::uint64_t brought = 0;
  for (std::uint64_t at = range.begin, end = 0; at < last; at = end) {
    end = std::min((at / block + 1) * block, last);
    const PageRun all = pages_of(at, end);
    for (PageRun run{all.first, all.first};;) {
      run = find(chunks(parts), chunk_of(at)).next_absent({run.end, all.end});
      if (run.is_empty()) break;
      if (is_locked() || is_over()) return {};
      const std::uint64_t from = byte_of(chunk_of(at), run.first),
                          to = byte_of(chunk_of(at), run.end);
      const auto kept = keep_run(parts, mapping.data() + (from - begin), from,
                                 std::min(to, stat_.size), region_fd, /*reads=*/true);
      if (!kept) return {};
      brought += *kept;
    }
  }
  return brought;
}

}  // namespace cube::cache
