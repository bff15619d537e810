// A request of the client with its retries, from the caller's call to the outcome; for the sources
// of Client only.
#pragma once

#include <cstdint>

#include "prefetch/object/s3/client.h"

namespace cube::s3 {

inline constexpr std::uint64_t k_ns_of_ms = 1'000'000;

struct Client::Job {
  GetWish wish;
  Pairs query;  // of a listing
  bool is_listing = false;
  Done done;

  std::unique_ptr<Transfer> transfer;
  Outcome outcome;
  Credentials signed_with;
  std::uint64_t started_ns = 0, until_ns = 0;
  unsigned attempts = 0;
  std::string trouble_before;  // the trouble of the previous attempt
  bool has_moved = false, has_new_credentials = false, has_new_clock = false;
};

}  // namespace cube::s3
