#include "shim/cli/bucket/session.h"

#include <sys/prctl.h>

#include <cstdlib>
#include <utility>

#include "cache/base/settings/config.h"
#include "prefetch/object/s3/curl_api.h"
#include "shim/cli/complaint.h"
#include "shim/cli/settings.h"

namespace cube::cli {

void hide_secrets() { prctl(PR_SET_DUMPABLE, 0); }

std::optional<base::Config> bucket_config() {
  auto parsed =
      base::parse_config([](const char* name) { return std::getenv(name); }, base::IfWrong::end);
  if (tell_errors(parsed)) return std::nullopt;
  return std::move(parsed.config);
}

BucketSession::BucketSession(const base::Config& config, s3::ClientOptions options)
    : environment([](const char* name) { return std::getenv(name); }),
      credentials([this](std::string& why) { return s3::find_credentials(environment, why); }),
      client(s3::find_place(environment, config.s3_addressing), credentials, std::move(options)) {}

std::unique_ptr<BucketSession> BucketSession::open(unsigned most_in_flight) {
  const auto config = bucket_config();
  return config ? open(*config, most_in_flight) : nullptr;
}

std::unique_ptr<BucketSession> BucketSession::open(const base::Config& config,
                                                   unsigned most_in_flight) {
  hide_secrets();
  if (s3::curl() == nullptr) {
    complain(1, s3::why_no_curl());
    return nullptr;
  }
  return std::make_unique<BucketSession>(
      config, s3::ClientOptions{.timeout_s = static_cast<unsigned>(config.s3_timeout),
                                .most_in_flight = most_in_flight});
}

bool list_pages(s3::Client& client, s3::ListWish wish, const TakePage& take, s3::Outcome& outcome) {
  for (bool wants_more = true; wants_more;) {
    client.list(wish, [&](s3::Outcome& one, s3::ListPage& page) {
      outcome = std::move(one);
      wants_more = outcome.error == 0 && take(page) && !page.next_token.empty();
      wish.token = page.next_token;
    });
    client.run_until_idle();
  }
  return outcome.error == 0;
}

}  // namespace cube::cli
