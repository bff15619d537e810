#include "cache/fill/kept_parts.h"

#include <algorithm>
#include <cstring>

#include "cache/base/memory/copy_bytes.h"
#include "cache/region/large/large_pages.h"

namespace cube::cache {

bool KeptParts::keep(const std::byte* from, std::uint64_t at, std::uint64_t n) {
  const std::uint64_t block = parts_.rules.block, last = at + n;
  for (std::uint64_t begin = at, end = 0; begin < last; begin = end) {
    end = std::min((begin / block + 1) * block, last);
    if (!keep_block(from + (begin - at), begin, end)) return false;
  }
  return true;
}

bool KeptParts::keep_block(const std::byte* from, std::uint64_t at, std::uint64_t end) {
  SingleFlight::Ticket ticket;
  const std::uint64_t hash = block_hash_of(key_, at / parts_.rules.block);
  // If another process has the flight, it stores the block.
  if (parts_.flights.begin_prefetch(hash, ticket) != SingleFlight::Prefetch::mine ||
      ticket.hold().slot == nullptr)
    return true;
  const auto claim = chunks_.make_kept(key_, chunk_of(at));
  if (!claim) return false;
  const PageRun all = pages_of(at, end);
  for (PageRun run = claim.next_absent(all); !run.is_empty();
       run = claim.next_absent({run.end, all.end})) {
    const auto window = chunks_.window(claim, run);
    if (!window) return false;
    const std::uint64_t first = byte_of(chunk_of(at), run.first);
    const std::uint64_t room = run.count() * k_chunk_page, bytes = std::min(room, end - first);
    base::copy_bytes(window->data(), from + (first - at), bytes);
    std::memset(window->data() + bytes, 0, room - bytes);
    chunks_.note_present(claim, run);
  }
  return true;
}

bool KeptParts::take(std::byte* to, std::uint64_t at, std::uint64_t n) const {
  for (std::uint64_t begin = at, last = at + n, end = 0; begin < last; begin = end) {
    end = std::min((begin / k_chunk_bytes + 1) * k_chunk_bytes, last);
    const auto claim = chunks_.find_kept(key_, chunk_of(begin));
    if (!claim || !claim.has_all(pages_of(begin, end))) return false;
    base::copy_bytes(to + (begin - at), claim.data() + begin % k_chunk_bytes, end - begin);
  }
  return true;
}

void KeptParts::drop() {
  for (std::uint32_t number = 0; number <= chunk_of(stat_.size - 1); ++number) {
    const std::uint32_t place = chunks_.find_kept(key_, number).place();
    if (place != Chunks::k_none) chunks_.give_back_memory(place, /*whatever=*/true);
  }
}

}  // namespace cube::cache
