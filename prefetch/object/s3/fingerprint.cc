#include "prefetch/object/s3/fingerprint.h"

#include "cache/base/words.h"
#include "prefetch/object/s3/digest.h"
#include "prefetch/object/s3/uri.h"

namespace cube::s3 {
namespace {

bool is_md5(std::string_view etag) {
  return etag.size() == 32 && etag.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// Returns the value in "x-goog-hash: crc32c=...", or empty if Google might have decompressed the
// object: the value is the checksum of the stored bytes.
std::string_view google_crc32c(const HttpAnswer& http) {
  constexpr std::string_view k_name = "crc32c=";
  const std::string_view stored = http.header("x-goog-stored-content-encoding");
  if (!stored.empty() && stored != "identity") return {};
  for (const auto& [name, value] : http.headers) {
    if (name != "x-goog-hash") continue;
    const std::size_t at = value.find(k_name);
    if (at == std::string::npos) continue;
    const std::string_view sent = std::string_view(value).substr(at + k_name.size());
    return sent.substr(0, sent.find(','));
  }
  return {};
}

}  // namespace

Fingerprint::Fingerprint(const HttpAnswer& head, std::string_view etag) {
  for (const std::string_view name : {"crc64nvme", "crc32c", "crc32", "sha256"}) {
    const std::string_view sent = head.header("x-amz-checksum-" + std::string(name));
    // "value-4" is a checksum of the 4 parts of an upload and not of the object's bytes.
    if (sent.empty() || sent.find('-') != std::string_view::npos) continue;
    algorithm_ = name;
    value_ = sent;
    return;
  }
  for (const std::string_view name : {"x-oss-hash-crc64ecma", "x-cos-hash-crc64ecma"}) {
    const std::string_view sent = head.header(name);
    if (!base::number_of(sent)) continue;
    algorithm_ = "crc64ecma";
    value_ = sent;
    return;
  }
  if (const std::string_view sent = google_crc32c(head); !sent.empty()) {
    algorithm_ = "crc32c";
    value_ = sent;
    return;
  }
  const std::string_view encryption = head.header("x-amz-server-side-encryption");
  const bool is_etag_md5 = is_md5(etag) && (encryption.empty() || encryption == "AES256") &&
                           head.header("x-amz-server-side-encryption-customer-algorithm").empty();
  if (is_etag_md5) md5_ = etag;
}

bool Fingerprint::is_of(std::string_view bytes) const {
  if (algorithm_.empty()) return md5_.empty() || hex(s3::md5(bytes)) == md5_;
  return algorithm_ == "crc64ecma" ? base::number_of(value_) == crc64ecma(bytes)
                                   : value_ == checksum(algorithm_, bytes);
}

}  // namespace cube::s3
