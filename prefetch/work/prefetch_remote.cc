// Part of Prefetcher: fetches a file from another node, or passes the fetch on to the origin.
#include "cache/base/clock.h"
#include "prefetch/work/decline_reason.h"
#include "prefetch/work/prefetcher.h"

namespace cube::prefetch {

bool Prefetcher::make_remote_engine(std::string& why) {
  EngineOptions engine;
  engine.depth = options_.depth;
  engine.nice = options_.nice;
  remote_engine_ = make_engine(base::EngineKind::threads, engine, *this, why);
  return remote_engine_ != nullptr;
}

FetchClient::First Prefetcher::before_open(Fetch& of, const base::Result<cache::FileStat>* looked) {
  using Remote = cache::BackgroundFill::Remote;
  auto& flight = static_cast<PlannedFetch&>(of);
  if (looked != nullptr && !*looked) return {First::Do::decline, k_ask_origin};
  const cache::FileStat* const stat = looked != nullptr ? &**looked : nullptr;
  const Remote found = flight.fetch.take_remote(stat, flight.file.most_bytes);
  if (found == Remote::look && stat == nullptr) return {First::Do::look};
  if (found == Remote::absent || found == Remote::look) return {First::Do::decline, k_ask_origin};
  note_placed(flight);
  if (found == Remote::there) return {First::Do::decline, k_is_there};
  flight.bytes = flight.fetch.remote_bytes();
  if (found == Remote::published) return {First::Do::decline, k_published};
  return {First::Do::decline, reason_of(flight.fetch.reason(), S_IFREG)};
}

void Prefetcher::submit(std::unique_ptr<PlannedFetch> flight) {
  IoEngine& engine = remote_engine_ != nullptr && flight->fetch.may_be_remote()
                         ? *remote_engine_
                         : engine_for(flight->file.path);
  flight->asks_first = &engine == remote_engine_.get();
  flight->began_ns = base::monotonic_ns();
  engine.submit(*flight.release());
}

void Prefetcher::ask_origin(std::unique_ptr<PlannedFetch> flight) {
  flight->asks_first = false;
  IoEngine& engine = engine_for(flight->file.path);
  flight->began_ns = base::monotonic_ns();
  engine.submit(*flight.release());
}

}  // namespace cube::prefetch
