#include "cache/tier/block_writer.h"

#include <algorithm>
#include <utility>

#include "cache/base/clock.h"
#include "cache/region/large/large_pages.h"
#include "cache/tier/block_record.h"

namespace cube::cache {
namespace {

// The buffer has room for the bytes of a chunk, and as much for the heads of its blocks.
constexpr std::uint64_t k_buffer_bytes = 2 * std::uint64_t{k_chunk_bytes};

}  // namespace

std::uint32_t BlockWriter::places() const {
  const Region& region = chunks_.region();
  return region.header().has_chunks.load(std::memory_order_relaxed) != 0
             ? region.layout().chunk_count()
             : 0;
}

std::uint64_t BlockWriter::left() const {
  std::uint64_t count = 0;
  for (std::uint32_t place = 0, n = block_ == 0 ? 0 : places(); place < n; ++place)
    count += chunks_.has_offer(place) ? 1 : 0;
  return count;
}

base::Result<void> BlockWriter::pass(const std::function<bool()>& may_go_on,
                                     const std::function<void()>& note_step) {
  for (std::uint32_t place = 0, n = block_ == 0 ? 0 : places(); place < n && may_go_on(); ++place) {
    const auto from = chunks_.offer_at(place);
    if (!from) continue;
    if (const auto offered = offer(*from); !offered) return offered;
    chunks_.end_offer(*from);
    note_step();
  }
  return {};
}

base::Result<void> BlockWriter::offer(const Chunks::Offer& from) {
  // If the file was changed, or if its row was reused for another file, the path is missing.
  // Without the path, the file of the bytes is unknown.
  if (!names_.find(from.key, name_)) return {};
  if (!buffer_) {
    auto buffer = base::Mapping::anonymous(k_buffer_bytes);
    if (!buffer) return base::fail(buffer.error().value);
    buffer_ = std::move(*buffer);
  }
  offsets_.clear();
  taken_.clear();
  fill_ = 0;
  const FileStat& stat = name_.stat;
  const std::uint64_t begin = std::uint64_t{from.number} * k_chunk_bytes,
                      end = std::min(begin + k_chunk_bytes, stat.size);
  const std::uint64_t now = base::wall_ns();
  for (std::uint64_t at = begin; at < end; at += block_) {
    const PageRun pages = pages_of(at, std::min(at + block_, end));
    if (!from.claim.has_all(pages) || chunks_.is_offered(from.claim, pages)) continue;
    const BlockPlace block{block_, at / block_};
    const BlockName name(name_.path(), block);
    if (name.text().empty()) return {};
    RecordPlan plan = plan_block(fill_, name, block, stat);
    if (plan.end > buffer_.size()) {
      if (const auto written = flush(); !written) return written;
      plan = plan_block(fill_, name, block, stat);
    }
    write_block(buffer_.data(), plan, {name, block, stat, from.claim.data() + (at - begin), now});
    offsets_.push_back(plan.start);
    fill_ = plan.end;
    taken_.push_back(pages);
  }
  if (const auto written = flush(); !written) return written;
  for (const PageRun& pages : taken_) chunks_.note_offered(from.claim, pages);
  return {};
}

base::Result<void> BlockWriter::flush() {
  const auto offsets = std::exchange(offsets_, {});
  const std::uint64_t bytes = std::exchange(fill_, 0);
  if (offsets.empty()) return {};
  for (Tier* const tier : tiers_) {
    if (const auto offered = tier->offer({buffer_.data(), bytes}, offsets); !offered)
      return offered;
  }
  return {};
}

}  // namespace cube::cache
