#include "prefetch/object/s3/http.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "prefetch/object/s3/uri.h"
#include "prefetch/object/s3/xml.h"

namespace cube::s3 {
namespace {

constexpr std::size_t k_most_body = 16 << 20, k_most_headers = 256;
constexpr long k_connect_ms = 5000;
// A transfer below this speed counts as broken after k_least_stalled_s, or after timeout /
// k_stalled_part if that is longer.
constexpr long k_least_bytes_per_second = 1024, k_least_stalled_s = 2, k_stalled_part = 4;

}  // namespace

std::string_view HttpAnswer::header(std::string_view name) const {
  const auto found = std::ranges::find(headers, name, &std::pair<std::string, std::string>::first);
  return found == headers.end() ? std::string_view() : found->second;
}

std::time_t HttpAnswer::date() const { return http_time(header("date")); }

std::time_t http_time(std::string_view text) {
  std::tm parts{};
  return strptime(std::string(text).c_str(), "%a, %d %b %Y %H:%M:%S", &parts) == nullptr
             ? 0
             : timegm(&parts);
}

std::string HttpAnswer::trouble(std::string_view code) const {
  if (curl == CURLE_FAILED_INIT) return why_no_curl();
  if (!is_whole())
    return fmt::format("{}{}", s3::curl()->error_text(curl),
                       status == 0 ? "" : fmt::format(" (HTTP {})", status));
  std::string text = fmt::format("HTTP {}", status);
  if (code.empty() || body.empty()) return text;
  const std::string parent(code.substr(0, code.rfind('/') + 1));
  const std::string name = xml_text(body, code), message = xml_text(body, parent + "Message");
  if (!name.empty()) text += " " + name;
  if (!message.empty()) text += ": " + message.substr(0, message.find('\n'));
  return text;
}

Transfer::Transfer() : handle_(curl()->easy_init()) {}

Transfer::~Transfer() {
  drop_headers();
  curl()->easy_cleanup(handle_);
}

void Transfer::drop_headers() {
  if (headers_ != nullptr) curl()->list_free(headers_);
  headers_ = nullptr;
}

std::size_t Transfer::take_header(char* at, std::size_t size, std::size_t n, void* self) {
  auto& answer = static_cast<Transfer*>(self)->answer_;
  const std::string_view line(at, size * n);
  if (line.starts_with("HTTP/")) {
    // The headers so far belong to an earlier answer: a proxy's, or 100 Continue.
    answer.headers.clear();
    const std::size_t space = line.find(' ');
    answer.status = space == std::string_view::npos ? 0 : std::atoi(at + space + 1);
  } else if (const std::size_t colon = line.find(':');
             colon != std::string_view::npos && answer.headers.size() < k_most_headers) {
    answer.headers.emplace_back(lower_case(line.substr(0, colon)), trimmed(line.substr(colon + 1)));
  }
  return line.size();
}

std::size_t Transfer::take_body(char* at, std::size_t size, std::size_t n, void* self) {
  auto& own = *static_cast<Transfer*>(self);
  const std::size_t bytes = size * n;
  const bool is_good = own.answer_.status / 100 == 2;
  if (is_good && own.begin_ && !std::exchange(own.has_begun_, true)) {
    own.begin_error_ = own.begin_(own.answer_, own.room_);
    if (own.begin_error_ != 0) return 0;
  }
  if (is_good && own.room_.at != nullptr) {
    const std::size_t skipped = std::min<std::uint64_t>(bytes, own.room_.skip);
    own.room_.skip -= skipped;
    const std::size_t fits =
        std::min<std::size_t>(bytes - skipped, own.room_.bytes - own.answer_.body_bytes);
    std::memcpy(own.room_.at + own.answer_.body_bytes, at + skipped, fits);
    own.answer_.body_bytes += fits;
    own.has_overflowed_ = skipped + fits != bytes;
    return skipped + fits;
  }
  if (own.answer_.body.size() + bytes > k_most_body) {
    own.has_overflowed_ = true;
    return 0;
  }
  own.answer_.body.append(at, bytes);
  own.answer_.body_bytes += bytes;
  return bytes;
}

void Transfer::prepare(const HttpRequest& request, const std::string& body, Begin begin,
                       const Connection& connection, int timeout_ms) {
  const CurlApi& api = *curl();
  api.easy_reset(handle_);
  answer_ = {};
  room_ = {};
  begin_ = std::move(begin);
  begin_error_ = 0;
  has_overflowed_ = has_begun_ = false;
  drop_headers();
  for (const auto& [name, value] : request.headers)
    headers_ = api.list_append(headers_, fmt::format("{}: {}", name, value).c_str());
  headers_ = api.list_append(headers_, "Expect:");
  const auto set = [&](CURLoption option, auto value) { api.set(handle_, option, value); };
  set(CURLOPT_URL, request.url().c_str());
  set(CURLOPT_HTTPHEADER, headers_);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_PATH_AS_IS, 1L);
  set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  // With HTTP 0.9, any bytes would be accepted as a body.
  set(CURLOPT_HTTP09_ALLOWED, 0L);
  set(CURLOPT_CONNECTTIMEOUT_MS, std::min<long>(k_connect_ms, timeout_ms));
  set(CURLOPT_TIMEOUT_MS, static_cast<long>(timeout_ms));
  set(CURLOPT_LOW_SPEED_LIMIT, k_least_bytes_per_second);
  set(CURLOPT_LOW_SPEED_TIME,
      std::max<long>(k_least_stalled_s, timeout_ms / 1000 / k_stalled_part));
  set(CURLOPT_BUFFERSIZE, 256L << 10);
  set(CURLOPT_TCP_NODELAY, 1L);
  set(CURLOPT_TCP_KEEPALIVE, 1L);
  set(CURLOPT_HEADERFUNCTION, &take_header);
  set(CURLOPT_HEADERDATA, this);
  set(CURLOPT_WRITEFUNCTION, &take_body);
  set(CURLOPT_WRITEDATA, this);
  set(CURLOPT_PRIVATE, this);
  if (request.method != "GET") set(CURLOPT_CUSTOMREQUEST, request.method.c_str());
  if (!body.empty()) {
    set(CURLOPT_POSTFIELDSIZE, static_cast<long>(body.size()));
    set(CURLOPT_COPYPOSTFIELDS, body.c_str());
  }
  if (!connection.ca_bundle.empty()) set(CURLOPT_CAINFO, connection.ca_bundle.c_str());
  if (connection.no_proxy) set(CURLOPT_NOPROXY, "*");
}

void Transfer::end(CURLcode code) {
  const CurlApi& api = *curl();
  answer_.curl = code;
  api.info(handle_, CURLINFO_TOTAL_TIME, &answer_.seconds);
  api.info(handle_, CURLINFO_STARTTRANSFER_TIME, &answer_.first_byte_seconds);
}

HttpAnswer exchange(const Exchange& wish) {
  if (curl() == nullptr) return {.curl = CURLE_FAILED_INIT};
  HttpRequest request;
  request.method = wish.body.empty() ? wish.method : "POST";
  const std::size_t scheme = wish.url.find("://");
  const std::size_t host = scheme == std::string::npos ? 0 : scheme + 3;
  const std::size_t path = std::min(wish.url.find('/', host), wish.url.size());
  request.scheme = scheme == std::string::npos ? "https" : wish.url.substr(0, scheme);
  request.host = wish.url.substr(host, path - host);
  request.path = path == wish.url.size() ? "/" : wish.url.substr(path);
  request.headers = wish.headers;
  if (request.method == "PUT") request.headers.emplace_back("content-length", "0");
  Transfer transfer;
  const char* const bundle = std::getenv("AWS_CA_BUNDLE");
  transfer.prepare(request, wish.body, {},
                   {.ca_bundle = bundle == nullptr ? "" : bundle, .no_proxy = wish.no_proxy},
                   wish.timeout_ms);
  transfer.end(curl()->easy_perform(transfer.handle()));
  return std::move(transfer.answer());
}

}  // namespace cube::s3
