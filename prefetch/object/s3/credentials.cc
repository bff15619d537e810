#include "prefetch/object/s3/credentials.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "cache/base/words.h"
#include "prefetch/object/s3/http.h"
#include "prefetch/object/s3/uri.h"
#include "prefetch/object/s3/xml.h"

namespace cube::s3 {
namespace {

constexpr std::time_t k_renew_before = 600, k_expired_before = 15, k_between_tries = 30,
                      k_after_vain_try = 10;
constexpr int k_near_ms = 1000, k_far_ms = 5000;

// The input of one source in the chain. A source returns credentials, or an error; `why` stays
// empty if the source is not configured.
struct Look {
  const Environment& environment;
  std::string& why;

  base::Result<Credentials> none(std::string text) const {
    why = std::move(text);
    return base::fail(EACCES);
  }
};

base::Result<Credentials> from_json(const Look& look, const std::string& text, const char* source) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto member = [&](const char* name) {
    return json.is_object() && json.contains(name) && json[name].is_string()
               ? json[name].get<std::string>()
               : std::string();
  };
  Credentials found{member("AccessKeyId"), member("SecretAccessKey"),
                    member("Token").empty() ? member("SessionToken") : member("Token"),
                    parse_iso_time(member("Expiration")), source};
  if (found.access_key.empty() || found.secret.empty())
    return look.none(fmt::format("{} gave no keys", source));
  return found;
}

base::Result<Credentials> from_variables(const Look& look) {
  Credentials found{look.environment.variable("AWS_ACCESS_KEY_ID"),
                    look.environment.variable("AWS_SECRET_ACCESS_KEY"),
                    look.environment.variable("AWS_SESSION_TOKEN"), 0, "the environment"};
  if (found.access_key.empty()) return base::fail(ENOENT);
  if (found.secret.empty()) return look.none("AWS_ACCESS_KEY_ID without AWS_SECRET_ACCESS_KEY");
  return found;
}

base::Result<Credentials> assume_role(const Look& look, const std::string& file,
                                      const std::string& role, std::string session) {
  const std::string token(trimmed(read_small_file(file)));
  if (token.empty()) return look.none("cannot read the web identity token " + file);
  if (session.empty()) session = "cubeshim";
  std::string region = look.environment.variable("AWS_REGION");
  if (region.empty()) region = look.environment.variable("AWS_DEFAULT_REGION");
  if (region.empty()) region = look.environment.of_profile("region");
  std::string endpoint = look.environment.variable("AWS_ENDPOINT_URL_STS");
  if (endpoint.empty())
    endpoint = region.empty() ? "https://sts.amazonaws.com"
                              : fmt::format("https://sts.{}.amazonaws.com{}", region,
                                            region.starts_with("cn-") ? ".cn" : "");
  const auto answer = exchange({.url = endpoint + "/",
                                .body = canonical_query({{"Action", "AssumeRoleWithWebIdentity"},
                                                         {"Version", "2011-06-15"},
                                                         {"RoleArn", role},
                                                         {"RoleSessionName", session},
                                                         {"WebIdentityToken", token}}),
                                .timeout_ms = k_far_ms});
  if (answer.status != 200)
    return look.none(fmt::format("the token service refused the web identity: {}",
                                 answer.trouble("ErrorResponse/Error/Code")));
  Credentials found;
  XmlReader xml(answer.body);
  while (xml.next()) {
    const std::string_view path = xml.path();
    if (path.ends_with("Credentials/AccessKeyId")) found.access_key = xml.text();
    if (path.ends_with("Credentials/SecretAccessKey")) found.secret = xml.text();
    if (path.ends_with("Credentials/SessionToken")) found.token = xml.text();
    if (path.ends_with("Credentials/Expiration")) found.expires = parse_iso_time(xml.text());
  }
  if (found.access_key.empty() || found.secret.empty())
    return look.none("the token service gave no keys");
  found.source = "the web identity token";
  return found;
}

base::Result<Credentials> from_web_identity(const Look& look) {
  const std::string file = look.environment.variable("AWS_WEB_IDENTITY_TOKEN_FILE");
  const std::string role = look.environment.variable("AWS_ROLE_ARN");
  if (file.empty() || role.empty()) return base::fail(ENOENT);
  return assume_role(look, file, role, look.environment.variable("AWS_ROLE_SESSION_NAME"));
}

base::Result<Credentials> from_process(const Look& look, const std::string& command) {
  std::FILE* const pipe = popen(command.c_str(), "re");  // NOLINT(cert-env33-c): as AWS defines it
  if (pipe == nullptr) return look.none("cannot run the profile's credential_process");
  std::string text;
  char part[4096];
  std::size_t n;
  while ((n = std::fread(part, 1, sizeof part, pipe)) != 0) text.append(part, n);
  if (pclose(pipe) != 0) return look.none("the profile's credential_process failed");
  return from_json(look, text, "the profile's credential_process");
}

base::Result<Credentials> from_profile(const Look& look) {
  const auto& environment = look.environment;
  Credentials found{
      environment.of_profile("aws_access_key_id"), environment.of_profile("aws_secret_access_key"),
      environment.of_profile("aws_session_token"), 0, "the profile " + environment.profile()};
  if (!found.access_key.empty() && !found.secret.empty()) return found;
  const std::string file = environment.of_profile("web_identity_token_file");
  const std::string role = environment.of_profile("role_arn");
  if (!file.empty() && !role.empty())
    return assume_role(look, file, role, environment.of_profile("role_session_name"));
  const std::string command = environment.of_profile("credential_process");
  if (!command.empty()) return from_process(look, command);
  if (!environment.variable("AWS_PROFILE").empty())
    return look.none(fmt::format("the profile {} has no keys", environment.profile()));
  return base::fail(ENOENT);
}

base::Result<Credentials> from_container(const Look& look) {
  const auto& environment = look.environment;
  const std::string relative = environment.variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
  const std::string url = relative.empty()
                              ? environment.variable("AWS_CONTAINER_CREDENTIALS_FULL_URI")
                              : "http://169.254.170.2" + relative;
  if (url.empty()) return base::fail(ENOENT);
  // The file is read each time, because the token is rotated.
  const std::string file = environment.variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
  const std::string token(trimmed(file.empty()
                                      ? environment.variable("AWS_CONTAINER_AUTHORIZATION_TOKEN")
                                      : read_small_file(file)));
  Exchange wish{.url = url, .no_proxy = true, .timeout_ms = k_far_ms};
  if (!token.empty()) wish.headers.emplace_back("authorization", token);
  const auto answer = exchange(wish);
  if (answer.status != 200)
    return look.none("the container's credentials endpoint: " + answer.trouble(""));
  return from_json(look, answer.body, "the container's endpoint");
}

base::Result<Credentials> from_instance(const Look& look) {
  if (look.environment.is_on("AWS_EC2_METADATA_DISABLED")) return base::fail(ENOENT);
  std::string endpoint = look.environment.variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
  if (endpoint.empty()) endpoint = "http://169.254.169.254";
  while (endpoint.ends_with('/')) endpoint.pop_back();
  const std::string roles = endpoint + "/latest/meta-data/iam/security-credentials/";
  const auto token = exchange({.url = endpoint + "/latest/api/token",
                               .method = "PUT",
                               .headers = {{"x-aws-ec2-metadata-token-ttl-seconds", "21600"}},
                               .no_proxy = true,
                               .timeout_ms = k_near_ms});
  if (token.status != 200) return base::fail(ENOENT);
  const auto ask = [&](const std::string& url) {
    return exchange({.url = url,
                     .headers = {{"x-aws-ec2-metadata-token", token.body}},
                     .no_proxy = true,
                     .timeout_ms = k_near_ms});
  };
  const auto role = ask(roles);
  const std::string name(trimmed(role.body.substr(0, role.body.find('\n'))));
  if (role.status != 200 || name.empty()) return look.none("the instance has no role");
  return from_json(look, ask(roles + percent_encoded(name)).body, "the instance's role");
}

bool is_same(const Credentials& one, const Credentials& other) {
  return one.access_key == other.access_key && one.token == other.token;
}

// Returns the seconds by which a zone such as "-05:00", "+0530" or "+02" is ahead of UTC. The %z of
// old C libraries knows only some of these forms.
std::time_t seconds_ahead(std::string_view zone) {
  const bool is_ahead = zone.starts_with('+');
  if (!is_ahead && !zone.starts_with('-')) return 0;
  const auto number_at = [&](std::size_t at) {
    at = std::min(at, zone.size());
    return base::number_of<std::time_t>(zone.substr(at, 2)).value_or(0);
  };
  const std::size_t minutes_at = zone.find(':') == 3 ? 4 : 3;
  const std::time_t seconds = number_at(1) * 3600 + number_at(minutes_at) * 60;
  return is_ahead ? seconds : -seconds;
}

}  // namespace

std::time_t parse_iso_time(const std::string& text) {
  std::tm parts{};
  const char* end = strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
  if (end == nullptr) return 0;
  if (*end == '.') end += 1 + std::strspn(end + 1, "0123456789");
  return timegm(&parts) - seconds_ahead(end);
}

base::Result<Credentials> find_credentials(const Environment& environment, std::string& why) {
  if (environment.is_on("CUBESHIM_S3_ANONYMOUS"))
    return Credentials{.source = "none: CUBESHIM_S3_ANONYMOUS=1"};
  const Look look{environment, why};
  for (const auto from :
       {from_variables, from_web_identity, from_profile, from_container, from_instance}) {
    why.clear();
    auto found = from(look);
    // The search ends if a configured source fails, because later sources might have the keys of
    // another identity.
    if (found || !why.empty()) return found;
  }
  why =
      "no credentials: not in the environment, a web identity, a profile, the container or the "
      "instance (CUBESHIM_S3_ANONYMOUS=1 reads public buckets)";
  return base::fail(EACCES);
}

KeptCredentials::~KeptCredentials() {
  if (renewal_.valid()) renewal_.wait();
}

void KeptCredentials::start_renewal(std::time_t now) {
  if (renewal_.valid()) return;
  last_try_ = now;
  renewal_ = std::async(std::launch::async, [this] {
    std::string why;
    auto found = find_(why);
    return Found{std::move(found), std::move(why)};
  });
}

void KeptCredentials::take_renewal(std::time_t now) {
  Found found = renewal_.get();
  why_ = std::move(found.why);
  const auto& new_ones = found.credentials;
  const bool is_refused = is_refused_ && new_ones && is_same(*new_ones, *credentials_);
  was_vain_ = !new_ones || is_refused ||
              (new_ones->expires != 0 && new_ones->expires - now <= k_expired_before);
  // Keeps the old credentials if no others were found, because they might still be valid.
  if (!new_ones && credentials_ && !is_refused_) return;
  credentials_ = std::move(found.credentials);
  is_refused_ = is_refused;
}

bool KeptCredentials::was_tried_within(std::time_t seconds, std::time_t now) const {
  return now >= last_try_ && now - last_try_ < seconds;  // not if the clock was set back
}

base::Result<Credentials> KeptCredentials::current(std::time_t now) {
  const std::scoped_lock lock(mutex_);
  if (renewal_.valid() && renewal_.wait_for(std::chrono::seconds(0)) == std::future_status::ready)
    take_renewal(now);
  const auto left = [&] {
    if (!credentials_ || is_refused_) return std::time_t{0};
    return credentials_->expires == 0 ? k_renew_before + 1 : credentials_->expires - now;
  };
  if (left() > k_renew_before) return credentials_;
  const bool must_wait = left() <= k_expired_before;
  // A search can take seconds or run a program, so not each request may repeat a vain one.
  if (must_wait ? !was_vain_ || !was_tried_within(k_after_vain_try, now)
                : !was_tried_within(k_between_tries, now))
    start_renewal(now);
  if (must_wait && renewal_.valid()) take_renewal(now);
  return credentials_;
}

void KeptCredentials::refused(const Credentials& credentials) {
  const std::scoped_lock lock(mutex_);
  if (!credentials_ || is_refused_ || !is_same(*credentials_, credentials)) return;
  is_refused_ = true;
  was_vain_ = false;
}

std::string KeptCredentials::why() const {
  const std::scoped_lock lock(mutex_);
  return why_;
}

}  // namespace cube::s3
