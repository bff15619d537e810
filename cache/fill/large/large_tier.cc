// LargeFile: decides which blocks the tiers may get, fetches blocks from the tiers, and limits how
// long a fetch waits for the thread that writes to the tiers.
#include <algorithm>

#include "cache/base/clock.h"
#include "cache/base/memory/copy_bytes.h"
#include "cache/base/process/block_signals.h"
#include "cache/base/process/went_out.h"
#include "cache/fill/large/large_file.h"
#include "cache/record/recent_change.h"
#include "cache/region/fetch_scope.h"
#include "cache/region/large/large_pages.h"
#include "cache/region/large/large_paths.h"
#include "cache/tier/block_record.h"

namespace cube::cache {
namespace {

// Limits the time that the process spends waiting to a share of its time (1 / one_in), and allows
// bursts of most_ns.
class WaitShare {
 public:
  constexpr WaitShare(std::uint64_t one_in, std::uint64_t most_ns)
      : one_in_(one_in), most_ns_(most_ns) {}
  bool has_some(std::uint64_t now_ns) const {
    return paid_at_ns_.load(std::memory_order_relaxed) <= now_ns + one_in_ * most_ns_;
  }
  void spend(std::uint64_t now_ns, std::uint64_t ns) {
    const std::uint64_t before = paid_at_ns_.load(std::memory_order_relaxed);
    paid_at_ns_.store(std::max(before, now_ns) + one_in_ * ns, std::memory_order_relaxed);
  }

 private:
  const std::uint64_t one_in_, most_ns_;
  std::atomic<std::uint64_t> paid_at_ns_{
      0};  // monotonic clock: from then on, the waits so far are within the share
};
// The shares for waits of programs and of threads that read ahead. Without them, a disk that is
// slower than the origin would slow a program down to the disk's speed.
constinit WaitShare g_programs_share(20, 50'000'000), g_ahead_share(4, 500'000'000);
constexpr std::uint64_t k_wait_ns = 20'000'000;

}  // namespace

// Copies a block from a tier's record to the absent pages of the block's chunk.
class LargeFile::FromTier final : public Tier::Judge {
 public:
  FromTier(LargeFile& file, CacheParts& parts, const By& by, const BlockPlace& block,
           const Chunks::Claim& claim)
      : Judge(RecordKind::block, by.of_program != nullptr ? For::program : For::ahead),
        file_(file),
        parts_(parts),
        by_(by),
        block_(block),
        claim_(claim) {
    if (by.brings_block) bring_whole_block_of(file.stat_);
  }

  // Asks the tiers in order, until a tier has the block.
  bool ask(const Tiers& tiers, const BlockName& name, bool is_remote) {
    is_remote_ = is_remote;
    for (Tier* const tier : tiers) {
      tier_ = tier;
      if (!tier->visit(name.text(), *this)) continue;
      parts_.stats().count(base::k_tier_kinds[tier->kind()].blocks, bytes);
      base::note_way_out(base::Way::tier);
      return true;
    }
    return false;
  }
  bool is_here = false;
  std::uint64_t bytes = 0;

 private:
  Tier::Verdict judge(const Record& record) override {
    const Tier::Verdict verdict = compare_block(*tier_, record, file_.stat_, block_);
    if (verdict == Tier::Verdict::taken) is_here = copy(record.data());
    return verdict;
  }

  bool copy(const std::byte* from) {
    Chunks chunks = file_.chunks(parts_);
    const std::uint64_t begin = block_.begin(), end = begin + block_.bytes(file_.stat_.size);
    const PageRun all = pages_of(begin, end);
    for (PageRun run = claim_.next_absent(all); !run.is_empty();
         run = claim_.next_absent({run.end, all.end})) {
      const auto window = chunks.window(claim_, run);
      if (!window) return false;
      const std::uint64_t at = byte_of(chunk_of(begin), run.first);
      const std::uint64_t n = std::min(run.count() * k_chunk_page, end - at);
      base::copy_bytes(window->data(), from + (at - begin), n);
      if (!file_.publish(parts_, by_, chunks, claim_, run, window->data(), n)) return false;
      bytes += n;
    }
    if (is_remote_) {
      chunks.note_shared(claim_, all);
    } else {
      chunks.note_offered(claim_, all);
    }
    file_.note_brought(parts_, chunks, claim_, begin, /*has_disk=*/!is_remote_);
    return true;
  }

  Tier* tier_ = nullptr;  // the tier that is being asked
  bool is_remote_ = false;
  LargeFile& file_;
  CacheParts& parts_;
  const By& by_;
  const BlockPlace& block_;
  const Chunks::Claim& claim_;
};

LargeFile::Fetched LargeFile::bring_from_tier(CacheParts& parts, const By& by, std::uint64_t at,
                                              std::uint64_t& bytes) {
  if (!parts.has_tiers()) return Fetched::at_origin;
  // A jump out of this function would leave behind a buffer, a half-made place or an open fd of the
  // library.
  const base::BlockSignals block_signals;
  // This process may be a child that a signal handler has forked. Such a child has no tiers.
  if (by.scope != nullptr && !by.scope->is_own()) return Fetched::at_origin;
  const BlockPlace block{parts.rules.block, at / parts.rules.block};
  const BlockName name(named_.path, block);
  if (name.text().empty()) return Fetched::at_origin;
  // Looks for a place first, because without one the tiers' bytes would be useless.
  Chunks chunks = this->chunks(parts);
  const std::uint32_t number = chunk_of(at);
  const auto claim = is_full() ? find(chunks, number)
                               : chunks.make(key_, number, place_of(chunks, number), by.pass);
  if (!claim) return chunks.waits_for_tiers() ? Fetched::waits : Fetched::at_origin;
  FromTier judge(*this, parts, by, block, claim);
  bool is_found = judge.ask(parts.tiers, name, /*is_remote=*/false);
  // Asks the other nodes only if no page of the block is present. A present page came from the
  // origin, so the other nodes lacked the block a moment ago.
  const bool is_to_ask =
      !is_found && !claim.has_any(pages_of(block.begin(), block.begin() + block.bytes(stat_.size)));
  if (is_to_ask) is_found = judge.ask(parts.remote, name, /*is_remote=*/true);
  bytes += judge.bytes;
  return is_found && judge.is_here ? Fetched::here : Fetched::at_origin;
}

// If the file was changed very recently, another change may leave its times unchanged. Then no
// later stat can prove that the pages read now are still right. The marks `offered` and `shared`
// keep such pages from the tiers.
void LargeFile::note_read_now(Chunks& chunks, const Chunks::Claim& claim,
                              const PageRun& pages) const {
  const std::uint64_t now = base::wall_ns();
  if (!is_within_step(stat_.modified, now) && !may_hide_change(stat_, now)) return;
  chunks.note_offered(claim, pages);
  chunks.note_shared(claim, pages);
}

void LargeFile::note_brought(CacheParts& parts, Chunks& chunks, const Chunks::Claim& claim,
                             std::uint64_t at, bool has_disk) {
  const std::uint64_t begin = at / parts.rules.block * parts.rules.block;
  const PageRun pages = pages_of(begin, std::min(begin + parts.rules.block, stat_.size));
  // Only the holder of the block's flight adds pages, so no other process sees the block become
  // whole.
  if (!claim.has_all(pages)) return;
  if (LargePaths(parts.region).note(key_, named_.path, stat_)) chunks.note_whole(claim, has_disk);
  if (parts.remote.is_empty()) return;
  const BlockName name(named_.path, {parts.rules.block, at / parts.rules.block});
  for (Tier* const tier : parts.remote) tier->note_block_fetched(name.text(), key_, begin);
}

void LargeFile::end_block(CacheParts& parts, const By& by, std::uint64_t at) const {
  if (!by.brings_block || parts.remote.is_empty()) return;
  const BlockName name(named_.path, {parts.rules.block, at / parts.rules.block});
  for (Tier* const tier : parts.remote) tier->note_not_fetched(name.text());
}

Chunks::Pass LargeFile::after_wait(const Chunks& chunks, std::uint32_t ended, bool is_programs) {
  WaitShare& share = is_programs ? g_programs_share : g_ahead_share;
  const std::uint64_t now = base::monotonic_ns();
  if (!share.has_some(now)) return Chunks::Pass::must_pass;
  chunks.wait_for_tiers(ended, k_wait_ns);
  share.spend(now, base::monotonic_ns() - now);
  return Chunks::Pass::may_pass;
}

}  // namespace cube::cache
