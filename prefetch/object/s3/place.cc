#include "prefetch/object/s3/place.h"

#include <arpa/inet.h>
#include <fmt/core.h>

#include "prefetch/object/s3/uri.h"

namespace cube::s3 {
namespace {

bool is_address_or_has_port(std::string_view host) {
  if (host.starts_with('[') || host.find(':') != std::string_view::npos) return true;
  in_addr unused{};
  return inet_pton(AF_INET, std::string(host).c_str(), &unused) == 1;
}

// Returns true if the bucket's name can be part of the host name. A certificate for
// *.s3.example.com does not cover a.b.s3.example.com, and a host name has no capitals or '_'.
bool fits_a_host(std::string_view bucket, std::string_view scheme) {
  return bucket.find('_') == std::string_view::npos && lower_case(bucket) == bucket &&
         (scheme != "https" || bucket.find('.') == std::string_view::npos);
}

}  // namespace

HttpRequest Place::request(std::string_view bucket, std::string_view key) const {
  const std::string aws =
      fmt::format("https://s3.{}amazonaws.com{}", region.empty() ? "" : region + ".",
                  region.starts_with("cn-") ? ".cn" : "");
  const std::string& from = endpoint.empty() ? aws : endpoint;
  HttpRequest made;
  const std::size_t scheme = from.find("://");
  made.scheme = scheme == std::string::npos ? "https" : lower_case(from.substr(0, scheme));
  std::string host = scheme == std::string::npos ? from : from.substr(scheme + 3);
  std::string base;
  if (const std::size_t slash = host.find('/'); slash != std::string::npos) {
    base = host.substr(slash);
    host.resize(slash);
    while (base.ends_with('/')) base.pop_back();
  }
  const std::string_view own_port = made.scheme == "http" ? ":80" : ":443";
  const bool has_port_or_is_address = is_address_or_has_port(host);
  if (host.ends_with(own_port)) host.resize(host.size() - own_port.size());
  const bool in_path = addressing == base::S3Addressing::path ||
                       (addressing == base::S3Addressing::automatic &&
                        (has_port_or_is_address || !fits_a_host(bucket, made.scheme)));
  made.host = in_path ? host : fmt::format("{}.{}", bucket, host);
  made.path = base + (in_path ? "/" + percent_encoded(bucket) : "") +
              (in_path && key.empty() ? "" : "/") + percent_encoded(key, "/");
  return made;
}

Place find_place(const Environment& environment, base::S3Addressing addressing) {
  Place place;
  place.addressing = addressing;
  const auto first_of = [&](std::initializer_list<const char*> names) {
    std::string value;
    for (const char* const name : names)
      if (value.empty()) value = environment.variable(name);
    return value;
  };
  for (const char* const name : {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}) {
    if (!place.endpoint.empty()) break;
    place.endpoint = environment.variable(name);
    place.endpoint_source = name;
  }
  if (place.endpoint.empty() && !environment.is_on("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS")) {
    const std::string services = environment.of_profile("services");
    if (!services.empty())
      place.endpoint = environment.of_section("services " + services, "s3.endpoint_url");
    if (place.endpoint.empty()) place.endpoint = environment.of_profile("endpoint_url");
    place.endpoint_source = "the profile " + environment.profile();
  }
  if (place.endpoint.empty()) place.endpoint_source = "AWS";
  place.region = first_of({"AWS_REGION", "AWS_DEFAULT_REGION"});
  if (place.region.empty()) place.region = environment.of_profile("region");
  place.ca_bundle = environment.variable("AWS_CA_BUNDLE");
  if (place.ca_bundle.empty()) place.ca_bundle = environment.of_profile("ca_bundle");
  const std::string style = environment.of_profile("s3.addressing_style");
  if (addressing == base::S3Addressing::automatic && !style.empty()) {
    if (style == "path") place.addressing = base::S3Addressing::path;
    if (style == "virtual") place.addressing = base::S3Addressing::virtual_host;
  }
  return place;
}

}  // namespace cube::s3
