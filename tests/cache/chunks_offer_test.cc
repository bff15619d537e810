// Offers of chunks to the tiers: which chunks are offered, which chunks are not evicted until then,
// and which threads wait for the offers.
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "cache/base/clock.h"
#include "cache/region/large/chunks.h"
#include "cache/region/segments.h"
#include "tests/support/test_region.h"

namespace cube::cache {
namespace {

constexpr FileKey k_stays{11, {12, 13}}, k_comes{14, {15, 16}}, k_stays_changed{11, {17, 18}};
constexpr std::uint64_t k_ms = 1'000'000, k_minute = 60'000 * k_ms;

// Waits until a thread of this process sleeps in the kernel.
void wait_for_sleep(long tid) {
  const std::string path = "/proc/self/task/" + std::to_string(tid) + "/stat";
  for (char text[512]; true; sched_yield()) {
    std::FILE* const file = std::fopen(path.c_str(), "r");
    if (file == nullptr) return;
    text[std::fread(text, 1, sizeof text - 1, file)] = '\0';
    std::fclose(file);
    if (std::strstr(text, ") S ") != nullptr) return;
  }
}

// All segments are in use. Each has 2 MiB and holds one chunk.
struct ChunksOfferTest : testing::Test {
  tests::TestRegion region{40 * tests::k_mib};
  Chunks chunks{*region};
  const std::uint32_t places = resident_segments(*region);

  ChunksOfferTest() {
    for (std::uint32_t number = 0; number < places; ++number)
      EXPECT_TRUE(chunks.make(k_stays, number, Chunks::k_none));
  }
  Chunks::Claim chunk(std::uint32_t number) const { return chunks.find(k_stays, number); }
  std::uint32_t place(std::uint32_t number) const { return chunk(number).place(); }
  void note_all_whole() const {
    for (std::uint32_t number = 0; number < places; ++number) chunks.note_whole(chunk(number));
  }
  void set_writer_alive(std::uint64_t at_ns) const { region->header().disk_alive_ns.store(at_ns); }
  void set_state(std::uint32_t at, SegmentState state) const {
    auto& word = region->chunk_row(at).word;
    SegmentWord changed = SegmentWord::of_word(word.load());
    changed.state = state;
    word.store(changed.as_word());
  }
  bool make(Chunks::Pass pass, std::uint32_t number = 0) {
    return static_cast<bool>(chunks.make(k_comes, number, Chunks::k_none, pass));
  }
  std::uint32_t stay() const {
    std::uint32_t count = 0;
    for (std::uint32_t number = 0; number < places; ++number) count += chunk(number) ? 1 : 0;
    return count;
  }
};

TEST_F(ChunksOfferTest, OnlyAChunkWithWholeBlocksIsOffered) {
  EXPECT_FALSE(chunks.has_offer(place(3)));
  EXPECT_FALSE(chunks.offer_at(place(3)));
  chunks.note_whole(chunk(3));
  chunks.note_whole(chunk(3));
  EXPECT_TRUE(chunks.has_offer(place(3)));
  const auto offer = chunks.offer_at(place(3));
  ASSERT_TRUE(offer);
  EXPECT_EQ(offer->key, k_stays);
  EXPECT_EQ(offer->number, 3U);
  EXPECT_EQ(offer->whole, 2U);
  EXPECT_EQ(offer->claim.place(), place(3));
  EXPECT_FALSE(chunks.offer_at(place(4)));
}

TEST_F(ChunksOfferTest, OnlyASealedChunkIsOffered) {
  chunks.note_whole(chunk(3));
  const std::uint32_t at = place(3);
  for (const SegmentState state :
       {SegmentState::free, SegmentState::open, SegmentState::evicting}) {
    set_state(at, state);
    EXPECT_FALSE(chunks.has_offer(at)) << static_cast<int>(state);
    EXPECT_FALSE(chunks.offer_at(at)) << static_cast<int>(state);
  }
  set_state(at, SegmentState::sealed);
  EXPECT_TRUE(chunks.offer_at(at));
}

TEST_F(ChunksOfferTest, ChunkOnOfferKeepsItsPlaceWhileItIsWritten) {
  note_all_whole();
  std::vector<Chunks::Offer> offers;
  for (std::uint32_t at = 0; at < places; ++at) offers.push_back(*chunks.offer_at(at));
  EXPECT_FALSE(make(Chunks::Pass::must_pass));
  EXPECT_EQ(stay(), places);
  offers.clear();
  EXPECT_TRUE(make(Chunks::Pass::must_pass));
}

TEST_F(ChunksOfferTest, BlockCompletedMeanwhileKeepsTheChunkOnOffer) {
  chunks.note_whole(chunk(0));
  const std::uint32_t at = place(0), ended = chunks.offers_ended();
  const auto early = chunks.offer_at(at);
  chunks.note_whole(early->claim);
  chunks.end_offer(*early);
  EXPECT_TRUE(chunks.has_offer(at));
  const auto late = chunks.offer_at(at);
  ASSERT_TRUE(late);
  EXPECT_EQ(late->whole, 2U);
  chunks.end_offer(*late);
  EXPECT_FALSE(chunks.has_offer(at));
  EXPECT_EQ(chunks.offers_ended(), ended + 2);
}

TEST_F(ChunksOfferTest, OfferedPagesAreKnownAcrossWords) {
  const auto claim = chunk(0);
  chunks.note_offered(claim, {60, 70});
  EXPECT_TRUE(chunks.is_offered(claim, {60, 70}));
  EXPECT_TRUE(chunks.is_offered(claim, {63, 65}));
  EXPECT_TRUE(chunks.is_offered(claim, {0, 61}));
  EXPECT_TRUE(chunks.is_offered(claim, {69, 200}));
  EXPECT_FALSE(chunks.is_offered(claim, {0, 60}));
  EXPECT_FALSE(chunks.is_offered(claim, {70, 128}));
  EXPECT_FALSE(chunks.is_offered(claim, {128, 192}));
  EXPECT_FALSE(chunks.is_offered(chunk(1), {60, 70}));
}

TEST_F(ChunksOfferTest, NewChunkInAPlaceHasNoOffer) {
  for (std::uint32_t number = 0; number < places; ++number) {
    chunks.note_whole(chunk(number));
    chunks.note_offered(chunk(number), {0, 512});
    chunks.note_shared(chunk(number), {0, 512});
  }
  const auto claim = chunks.make(k_stays_changed, 0, Chunks::k_none);
  ASSERT_TRUE(claim);
  EXPECT_FALSE(chunks.has_offer(claim.place()));
  EXPECT_FALSE(chunks.is_offered(claim, {5, 6}));
  EXPECT_FALSE(chunks.is_shared(claim, {5, 6}));
}

TEST_F(ChunksOfferTest, PlacesOnOfferAreSparedWhileTheWriterLives) {
  note_all_whole();
  set_writer_alive(base::coarse_monotonic_ns());
  EXPECT_FALSE(make(Chunks::Pass::no));
  EXPECT_FALSE(chunks.waits_for_tiers()) << "it takes nobody's place";
  EXPECT_FALSE(make(Chunks::Pass::may_pass));
  EXPECT_TRUE(chunks.waits_for_tiers());
  EXPECT_EQ(stay(), places);
  EXPECT_FALSE(make(Chunks::Pass::no));
  EXPECT_FALSE(chunks.waits_for_tiers());
}

TEST_F(ChunksOfferTest, PlaceNotOnOfferIsTakenWithoutWaiting) {
  // The chunk that the search examines last.
  std::uint32_t last = 0;
  for (std::uint32_t number = 0; number < places; ++number) {
    if (place(number) == places - 1) {
      last = number;
    } else {
      chunks.note_whole(chunk(number));
    }
  }
  set_writer_alive(base::coarse_monotonic_ns());
  EXPECT_TRUE(make(Chunks::Pass::may_pass));
  EXPECT_FALSE(chunks.waits_for_tiers());
  EXPECT_FALSE(chunk(last));
  EXPECT_EQ(stay(), places - 1);
}

TEST_F(ChunksOfferTest, ChunkThatMustPassTakesAPlaceOnOffer) {
  note_all_whole();
  set_writer_alive(base::coarse_monotonic_ns());
  EXPECT_TRUE(make(Chunks::Pass::must_pass));
  EXPECT_FALSE(chunks.waits_for_tiers());
  EXPECT_EQ(stay(), places - 1);
}

TEST_F(ChunksOfferTest, PlacesOnOfferAreTakenIfNoWriterLives) {
  note_all_whole();
  const std::uint64_t now = base::coarse_monotonic_ns();
  ASSERT_GT(now, k_minute) << "the machine has just started";
  std::uint32_t number = 0;
  // Either no writer has ever run, or the writer hangs at the disk.
  for (const std::uint64_t seen : {std::uint64_t{0}, now - k_minute}) {
    set_writer_alive(seen);
    EXPECT_TRUE(make(Chunks::Pass::may_pass, number++)) << seen;
    EXPECT_FALSE(chunks.waits_for_tiers()) << seen;
  }
  EXPECT_EQ(stay(), places - 2);
}

TEST_F(ChunksOfferTest, WaitForTheTiersEndsWithAnOffer) {
  chunks.note_whole(chunk(0));
  const std::uint32_t at = place(0), ended = chunks.offers_ended();
  const long waiter = gettid();
  std::thread writer([&] {
    while (region->header().chunks_waiting.load() == 0) sched_yield();
    wait_for_sleep(waiter);
    chunks.end_offer(*chunks.offer_at(at));
  });
  const std::uint64_t began = base::monotonic_ns();
  chunks.wait_for_tiers(ended, 5 * k_minute);
  EXPECT_LT(base::monotonic_ns() - began, 5 * k_minute);
  writer.join();
  EXPECT_EQ(region->header().chunks_waiting.load(), 0U);
  EXPECT_EQ(chunks.offers_ended(), ended + 1);
  // The writer has already ended.
  chunks.wait_for_tiers(ended, 5 * k_minute);
  EXPECT_LT(base::monotonic_ns() - began, 5 * k_minute);
}

TEST_F(ChunksOfferTest, WaitForTheTiersTimesOutAndNotifiesTheWriter) {
  const std::uint32_t news = region->header().disk_news.load();
  const std::uint64_t began = base::monotonic_ns();
  chunks.wait_for_tiers(chunks.offers_ended(), 20 * k_ms);
  EXPECT_GE(base::monotonic_ns() - began, 20 * k_ms);
  EXPECT_EQ(region->header().chunks_waiting.load(), 0U);
  EXPECT_EQ(region->header().disk_news.load(), news + 1);
}

}  // namespace
}  // namespace cube::cache
