// The checksum or the MD5 that a store names for an object. Thread safety: one thread.
#pragma once

#include <string>
#include <string_view>

#include "prefetch/object/s3/http.h"

namespace cube::s3 {

class Fingerprint {
 public:
  Fingerprint() = default;
  // `head` is that of a successful answer; `etag` is without quotes.
  Fingerprint(const HttpAnswer& head, std::string_view etag);
  // The MD5 in hexadecimal, which is used if there is no checksum; or empty.
  const std::string& md5() const { return md5_; }
  // Whether `bytes`, the whole object, have this checksum. True if there is none.
  bool is_of(std::string_view bytes) const;

 private:
  std::string algorithm_, value_, md5_;
};

}  // namespace cube::s3
