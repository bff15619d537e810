// The address of a store: its endpoint, its region, and whether a request names the bucket in the
// host name or in the path. AWS's environment variables override its profile. Thread safety:
// constant values.
#pragma once

#include <string>
#include <string_view>

#include "cache/base/settings/config.h"
#include "prefetch/object/s3/profile.h"
#include "prefetch/object/s3/request.h"

namespace cube::s3 {

struct Place {
  std::string endpoint;         // "https://s3.example.com:9000"; empty: AWS, by the region
  std::string endpoint_source;  // for messages
  std::string region;           // empty if not known
  base::S3Addressing addressing = base::S3Addressing::automatic;
  std::string ca_bundle;

  // The region that the signature names.
  std::string signed_region() const { return region.empty() ? "us-east-1" : region; }
  // Makes a request for a key of the bucket. An empty key means the bucket itself.
  HttpRequest request(std::string_view bucket, std::string_view key) const;
};

// `addressing` comes from CUBESHIM_S3_ADDRESSING. If it is automatic, the profile's setting
// applies.
Place find_place(const Environment& environment, base::S3Addressing addressing);

}  // namespace cube::s3
