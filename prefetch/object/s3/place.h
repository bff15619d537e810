// The address of a store: its endpoint, its region, and whether requests name the bucket in the
// host's name or in the path. AWS's variables and profile take precedence. Thread safety: constant
// values.
#pragma once

#include <string>
#include <string_view>

#include "cache/base/settings/config.h"
#include "prefetch/object/s3/profile.h"
#include "prefetch/object/s3/request.h"

namespace cube::s3 {

struct Place {
  std::string endpoint;         // "https://s3.example.com:9000"; empty: AWS, by the region
  std::string endpoint_source;  // for people
  std::string region;           // empty: not known
  base::S3Addressing addressing = base::S3Addressing::automatic;
  std::string ca_bundle;

  // The region to sign for.
  std::string signed_region() const { return region.empty() ? "us-east-1" : region; }
  // A request for a key of the bucket; an empty key is the bucket itself.
  HttpRequest request(std::string_view bucket, std::string_view key) const;
};

// `addressing`: from CUBESHIM_S3_ADDRESSING; if it is automatic, the profile's setting applies.
Place find_place(const Environment& environment, base::S3Addressing addressing);

}  // namespace cube::s3
