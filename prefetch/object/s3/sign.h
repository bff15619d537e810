// Signs requests to S3 with AWS Signature Version 4, in headers. The payload of a GET is not signed
// (UNSIGNED-PAYLOAD). A Signer derives the key of each day only one time. Thread safety: a Signer
// belongs to one thread.
#pragma once

#include <ctime>
#include <string>
#include <string_view>

#include "prefetch/object/s3/credentials.h"
#include "prefetch/object/s3/request.h"

namespace cube::s3 {

class Signer {
 public:
  // Adds x-amz-date, x-amz-content-sha256, the token and Authorization. Adds nothing if the
  // credentials are anonymous.
  void sign(HttpRequest& request, const Credentials& credentials, std::string_view region,
            std::time_t now);

 private:
  std::string day_, region_, secret_, key_;
};

}  // namespace cube::s3
