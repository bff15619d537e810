// Part of Prefetcher: fetches files that are adjacent at their origin with one request.
#include "cache/base/clock.h"
#include "prefetch/work/prefetcher.h"

namespace cube::prefetch {
namespace {

// The maximum size of a request in bytes. It is smaller while only a few requests may be in flight,
// because they must not delay programs that wait for the same origin.
constexpr std::uint64_t k_most_bytes = 1 << 20, k_most_bytes_of_few = 128 << 10;
constexpr unsigned k_few = 8;
// The most unwanted bytes between two files of one request.
constexpr std::uint64_t k_most_between = 64 << 10;
constexpr std::size_t k_most_files = 64;
// The limits on the requests in flight and on the total number of their files. Each request holds
// room for its bytes, and each file occupies one of the region's 4,096 flights.
constexpr unsigned k_most_requests = 16;
constexpr std::size_t k_most_under_way = 1024;
// While this many requests are in flight, the next request may wait until it is full.
constexpr unsigned k_enough = 2;

bool is_behind(const cache::OriginSpan& place, std::uint64_t end) {
  return place.begin >= end && place.begin - end <= k_most_between;
}

}  // namespace

void Prefetcher::Flights::add(std::unique_ptr<PlannedFetch> flight) {
  PlannedFetch* const added = flight.release();
  added->beside = nullptr;
  if (first_ == nullptr)
    first_ = added;
  else
    last_->beside = added;
  last_ = added;
}

std::unique_ptr<Prefetcher::PlannedFetch> Prefetcher::Flights::take_first() {
  std::unique_ptr<PlannedFetch> flight(first_);
  if (flight == nullptr) return flight;
  first_ = flight->next_beside();
  flight->beside = nullptr;
  return flight;
}

std::unique_ptr<Prefetcher::PlannedFetch> Prefetcher::Flights::take_all() {
  if (first_ == nullptr) return nullptr;
  for (PlannedFetch* one = first_; one != nullptr; one = one->next_beside()) {
    one->place = one->file.place;
    one->is_first = one == first_;
    one->is_last = one == last_;
  }
  first_->together = first_->place;
  first_->together.bytes = first_ == last_ ? 0 : last_->place.end() - first_->place.begin;
  return std::unique_ptr<PlannedFetch>(std::exchange(first_, nullptr));
}

// Called under the lock. Returns how many of the waiting files the next request fetches, or 0 if it
// must wait.
std::size_t Prefetcher::count_together() const {
  const unsigned in_flight = in_flight_.load(std::memory_order_relaxed);
  const std::uint64_t most_bytes = depth_ < k_few ? k_most_bytes_of_few : k_most_bytes;
  const std::deque<PlannedFile>& waiting = run_ahead_.waiting();
  const cache::OriginSpan& first = waiting.front().place;
  if (first.is_empty()) return 1;
  std::uint64_t end = first.end();
  std::size_t n = 1;
  bool is_full = false;
  for (; n < waiting.size() && !is_full; ++n) {
    const cache::OriginSpan& next = waiting[n].place;
    is_full = n == k_most_files || next.is_empty() || next.origin != first.origin ||
              !is_behind(next, end) || next.end() - first.begin > most_bytes;
    if (is_full) break;
    end = next.end();
  }
  if (!is_full && in_flight >= k_enough) return 0;
  if (n > 1 && (in_flight >= k_most_requests ||
                (in_flight != 0 && run_ahead_.unended() - waiting.size() + n > k_most_under_way)))
    return 0;
  return n;
}

void Prefetcher::begin_all(Flights flights) {
  Flights together;
  while (auto flight = flights.take_first()) {
    if (!needs_fetch(*flight)) {
      one_has_ended(flight->file.reader, flight->file.sequence, /*is_last=*/false);
      continue;
    }
    // The files in between are in memory already, so this file begins a new request.
    if (!together.is_empty() && !is_behind(flight->file.place, together.end())) {
      in_flight_.fetch_add(1, std::memory_order_relaxed);
      submit(together.take_all());
    }
    together.add(std::move(flight));
  }
  if (!together.is_empty()) return submit(together.take_all());
  in_flight_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace cube::prefetch
