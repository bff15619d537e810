#include "prefetch/object/s3/sign.h"

#include <fmt/core.h>

#include <algorithm>

#include "prefetch/object/s3/digest.h"
#include "prefetch/object/s3/uri.h"

namespace cube::s3 {
namespace {

constexpr std::string_view k_service = "s3", k_algorithm = "AWS4-HMAC-SHA256";

std::string time_text(std::time_t now) {
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y%m%dT%H%M%SZ", &parts);
  return text;
}

}  // namespace

void Signer::sign(HttpRequest& request, const Credentials& credentials, std::string_view region,
                  std::time_t now) {
  if (credentials.is_anonymous()) return;
  const std::string time = time_text(now), day = time.substr(0, 8);
  request.headers.emplace_back("x-amz-content-sha256", "UNSIGNED-PAYLOAD");
  request.headers.emplace_back("x-amz-date", time);
  if (!credentials.token.empty())
    request.headers.emplace_back("x-amz-security-token", credentials.token);

  Pairs signed_headers = request.headers;
  signed_headers.emplace_back("host", request.host);
  std::ranges::sort(signed_headers);
  std::string headers, names;
  for (const auto& [name, value] : signed_headers) {
    headers += name + ":" + std::string(trimmed(value)) + "\n";
    names += (names.empty() ? "" : ";") + name;
  }
  const std::string canonical =
      fmt::format("{}\n{}\n{}\n{}\n{}\nUNSIGNED-PAYLOAD", request.method, request.path,
                  canonical_query(request.query), headers, names);
  const std::string scope = fmt::format("{}/{}/{}/aws4_request", day, region, k_service);
  const std::string to_sign =
      fmt::format("{}\n{}\n{}\n{}", k_algorithm, time, scope, hex(sha256(canonical)));
  if (day != day_ || region != region_ || credentials.secret != secret_) {
    day_ = day;
    region_ = region;
    secret_ = credentials.secret;
    key_ =
        hmac_sha256(hmac_sha256(hmac_sha256(hmac_sha256("AWS4" + secret_, day), region), k_service),
                    "aws4_request");
  }
  request.headers.emplace_back(
      "authorization",
      fmt::format("{} Credential={}/{}, SignedHeaders={}, Signature={}", k_algorithm,
                  credentials.access_key, scope, names, hex(hmac_sha256(key_, to_sign))));
}

}  // namespace cube::s3
