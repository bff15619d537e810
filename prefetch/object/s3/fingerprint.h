// The checksum, or the MD5, that a store reports for an object. Thread safety: one thread.
#pragma once

#include <string>
#include <string_view>

#include "prefetch/object/s3/http.h"

namespace cube::s3 {

class Fingerprint {
 public:
  Fingerprint() = default;
  // `head` is the head of a successful answer. `etag` has no quotes.
  Fingerprint(const HttpAnswer& head, std::string_view etag);
  // The MD5 in hexadecimal, if it is used because there is no checksum; otherwise empty.
  const std::string& md5() const { return md5_; }
  // Returns true if `bytes`, which must be the whole object, match the checksum, or if there is no
  // checksum.
  bool is_of(std::string_view bytes) const;

 private:
  std::string algorithm_, value_, md5_;
};

}  // namespace cube::s3
