// Fetches an object of any size. One request fetches a small object. A large object is fetched in
// ranges, several at a time. If the object changes meanwhile, the fetch fails with ESTALE: each
// request has If-Match, and each answer must have the same ETag and size. If the result does not
// match the store's checksum of the whole object, the object is fetched again. Thread safety: the
// thread of the client.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <string>

#include "prefetch/object/s3/client.h"
#include "prefetch/object/s3/fingerprint.h"

namespace cube::s3 {

// Receives the bytes of an object.
class ObjectSink {
 public:
  virtual ~ObjectSink() = default;
  // Called when the object's size is known. Returns 0, or an errno to end the fetch. A second call
  // means that the fetch starts over.
  virtual int begin(const Outcome& first) = 0;
  // Returns the room for this range, which must stay valid until take().
  virtual std::byte* room(std::uint64_t first, std::size_t bytes) = 0;
  // Returns true if the sink already has this range, so that no request is needed.
  virtual bool has(std::uint64_t /*first*/, std::size_t /*bytes*/) { return false; }
  // Called when the range has arrived. Ranges may arrive in any order.
  virtual int take(std::uint64_t first, std::size_t bytes) = 0;
  // Returns the object's bytes from `first` on, which have all been taken, or null if the sink does
  // not keep them. In the latter case, an object of several ranges is not compared with its
  // checksum.
  virtual const std::byte* kept(std::uint64_t /*first*/) { return nullptr; }
};

struct WholeOptions {
  std::uint64_t range_bytes = 8 << 20;
  unsigned in_flight = 8;  // counted from the first missing range
  // If set, the only version to fetch. If its ETag is known, even the first request is for a range.
  struct Version {
    std::uint64_t size = 0;
    std::time_t modified = 0;
    std::string etag;
  };
  std::optional<Version> version = {};
};

// `sink` must live until `done` is called. The Outcome passed to `done` has the object's size, or
// the first error.
void get_whole(Client& client, std::string bucket, std::string key,
               std::shared_ptr<ObjectSink> sink, WholeOptions options, Done done);

}  // namespace cube::s3
