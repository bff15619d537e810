// Fetches an object of any size. One request fetches a small object; a large one is fetched in
// ranges, several at a time, all of one version (If-Match). If the result does not match the
// store's checksum of the whole object, the object is fetched again. Thread safety: the thread of
// the client.
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

// Takes the bytes.
class ObjectSink {
 public:
  virtual ~ObjectSink() = default;
  // Called when the object's size is known. Returns an errno to end the fetch. A second call means
  // that the fetch starts over.
  virtual int begin(const Outcome& first) = 0;
  // Room for this range; it stays valid until take().
  virtual std::byte* room(std::uint64_t first, std::size_t bytes) = 0;
  // Whether the sink already has this range, so that no request is needed.
  virtual bool has(std::uint64_t /*first*/, std::size_t /*bytes*/) { return false; }
  // Called when the range has arrived. Ranges may arrive in any order.
  virtual int take(std::uint64_t first, std::size_t bytes) = 0;
  // The object's bytes from `first` on, which have all been taken. Null: the sink does not keep
  // them, so an object of several ranges is not compared with its checksum.
  virtual const std::byte* kept(std::uint64_t /*first*/) { return nullptr; }
};

struct WholeOptions {
  std::uint64_t range_bytes = 8 << 20;
  unsigned in_flight = 8;  // ranges from the first missing one on
  // The only version to fetch. If its ETag is known, even the first request is for a range.
  struct Version {
    std::uint64_t size = 0;
    std::time_t modified = 0;
    std::string etag;
  };
  std::optional<Version> version = {};
};

// `sink` must live until `done` is called, whose Outcome has the object's size, or the first error.
void get_whole(Client& client, std::string bucket, std::string key,
               std::shared_ptr<ObjectSink> sink, WholeOptions options, Done done);

}  // namespace cube::s3
