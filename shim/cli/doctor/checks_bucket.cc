#include <cstdlib>
#include <ctime>

#include "prefetch/object/s3/curl_api.h"
#include "shim/cli/bucket/session.h"
#include "shim/cli/doctor/checks.h"
#include "shim/cli/printable.h"

namespace cube::cli {
namespace {

void check_place(const s3::Place& place, const s3::ObjectName& name, Findings& findings) {
  const auto request = place.request(name.bucket, "");
  say(findings, Health::well, "", "endpoint: {}://{} (from {}), requests go to {}{}",
      request.scheme, request.host, place.endpoint_source, request.host, request.path);
  if (request.scheme != "https")
    say(findings, Health::slow, "use https if the network is not yours alone",
        "no TLS: anybody on the network path can read and change the data");
  if (place.region.empty()) {
    say(findings, Health::well, "", "region: none is set; requests are signed for {}",
        place.signed_region());
  } else {
    say(findings, Health::well, "", "region: {}", place.region);
  }
}

bool check_keys(s3::KeptCredentials& credentials, Findings& findings) {
  const std::time_t now = std::time(nullptr);
  const auto found = credentials.current(now);
  if (!found) {
    say(findings, Health::broken, "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile",
        "credentials: {}", printable(credentials.why()));
    return false;
  }
  const std::string holds =
      found->expires == 0 ? ""
                          : fmt::format(", which hold for {} min", (found->expires - now) / 60);
  say(findings, Health::well, "", "credentials: from {}{}", printable(found->source), holds);
  return true;
}

void check_clock(const s3::Outcome& outcome, Findings& findings) {
  // Stores refuse a signature whose time is wrong by 15 minutes.
  constexpr std::time_t k_much = 300;
  const std::time_t date = outcome.http.date();
  if (date == 0) return;
  const std::time_t ahead = date - std::time(nullptr);
  const bool is_much = ahead > k_much || ahead < -k_much;
  say(findings, is_much ? Health::slow : Health::well, is_much ? "set this machine's clock" : "",
      "clock: the store's is {} s {}", std::abs(ahead), ahead < 0 ? "behind" : "ahead");
}

}  // namespace

void check_bucket(const std::string& uri, Findings& findings) {
  const auto name = s3::parse_s3_uri(uri);
  if (!name) {
    say(findings, Health::broken, "name it s3://BUCKET/PREFIX", "{}: not the name of a bucket",
        printable(uri));
    return;
  }
  hide_secrets();
  if (s3::curl() == nullptr) {
    say(findings, Health::broken, "install libcurl4 (Debian, Ubuntu) or libcurl (Red Hat, SUSE)",
        "{}", s3::why_no_curl());
    return;
  }
  say(findings, Health::well, "", "{}", s3::curl()->version());
  const auto config = bucket_config();
  if (!config) {
    say(findings, Health::broken, "correct the setting", "a setting is wrong, see above");
    return;
  }
  BucketSession session(*config, {.timeout_s = static_cast<unsigned>(config->s3_timeout)});
  check_place(session.client.place_of(name->bucket), *name, findings);
  if (!check_keys(session.credentials, findings)) return;

  const std::string before = session.client.place_of(name->bucket).region;
  s3::ListedObject sample;
  s3::Outcome outcome;
  const bool is_listed = list_pages(
      session.client, {.bucket = name->bucket, .prefix = name->key, .delimiter = "", .most = 10},
      [&](s3::ListPage& page) {
        for (auto& object : page.objects)
          if (object.size != 0) sample = std::move(object);
        return false;
      },
      outcome);
  check_clock(outcome, findings);
  if (const std::string& region = session.client.place_of(name->bucket).region; region != before)
    say(findings, Health::slow, "set AWS_REGION=" + region,
        "region: the bucket is in {}; each start costs one more request", region);
  if (!is_listed) {
    say(findings, Health::broken,
        outcome.error == EACCES ? "the keys need s3:ListBucket on this bucket" : "", "list: {}",
        printable(outcome.trouble));
    return;
  }
  say(findings, Health::well, "", "list: {} answers in {:.1f} ms", printable(uri),
      outcome.http.seconds * 1000);
  if (sample.key.empty()) {
    say(findings, Health::slow, "name a prefix with objects",
        "get: not tried, since no object of a byte or more is among the first 10");
    return;
  }
  session.client.get({.bucket = name->bucket, .key = sample.key, .range = {{0, 1}}},
                     [&](s3::Outcome& got) { outcome = std::move(got); });
  session.client.run_until_idle();
  if (outcome.error != 0) {
    say(findings, Health::broken,
        outcome.error == EACCES ? "the keys need s3:GetObject on these objects" : "", "get: {}",
        printable(outcome.trouble));
    return;
  }
  say(findings, Health::well, "", "get: the first byte of {} came in {:.1f} ms",
      printable(sample.key), outcome.http.first_byte_seconds * 1000);
}

}  // namespace cube::cli
