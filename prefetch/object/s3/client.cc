#include "prefetch/object/s3/client.h"

#include <fmt/core.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <utility>

#include "cache/base/clock.h"
#include "prefetch/object/s3/digest.h"
#include "prefetch/object/s3/uri.h"
#include "prefetch/object/s3/xml.h"

namespace cube::s3 {
namespace {

constexpr std::uint64_t k_ns_of_ms = 1'000'000;
constexpr const char* k_code = "Error/Code";

std::optional<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || read.ec != std::errc() || read.ptr != text.data() + text.size())
    return std::nullopt;
  return value;
}

bool is_md5(std::string_view etag) {
  return etag.size() == 32 && etag.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// From "x-goog-hash: crc32c=...": of the stored bytes, which Google may unpack on their way.
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

// The object's size, from "bytes FIRST-LAST/SIZE".
std::optional<std::uint64_t> size_of_range(std::string_view range, std::uint64_t first) {
  const std::size_t slash = range.find('/');
  if (slash == std::string_view::npos || !range.starts_with(fmt::format("bytes {}-", first)))
    return std::nullopt;
  return number(range.substr(slash + 1));
}

std::time_t http_time(std::string_view text) {
  std::tm parts{};
  return strptime(std::string(text).c_str(), "%a, %d %b %Y %H:%M:%S", &parts) == nullptr
             ? 0
             : timegm(&parts);
}

// It becomes a part of a host name and of the signature.
bool is_region_name(std::string_view name) {
  constexpr std::size_t k_longest = 63;
  return !name.empty() && name.size() <= k_longest && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
}

}  // namespace

Fingerprint::Fingerprint(const HttpAnswer& head, std::string_view etag) {
  for (const std::string_view name : {"crc64nvme", "crc32c", "crc32", "sha256"}) {
    const std::string_view sent = head.header("x-amz-checksum-" + std::string(name));
    // "value-4" is one of the parts of an upload.
    if (sent.empty() || sent.find('-') != std::string_view::npos) continue;
    algorithm_ = name;
    value_ = sent;
    return;
  }
  for (const std::string_view name : {"x-oss-hash-crc64ecma", "x-cos-hash-crc64ecma"}) {
    const std::string_view sent = head.header(name);
    if (!number(sent)) continue;
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
  return algorithm_ == "crc64ecma" ? number(value_) == crc64ecma(bytes)
                                   : value_ == checksum(algorithm_, bytes);
}

struct Client::Job {
  GetWish wish;
  Pairs query;  // of a listing
  bool is_listing = false;
  Done done;

  std::unique_ptr<Transfer> transfer;
  Outcome outcome;
  Credentials signed_with;
  std::uint64_t started_ns = 0, until_ns = 0;
  unsigned attempts = 0;
  std::string trouble_before;  // of the attempt before this one
  bool has_moved = false, has_new_credentials = false, has_new_clock = false;
};

Client::Client(Place place, KeptCredentials& credentials, ClientOptions options)
    : place_(std::move(place)),
      credentials_(credentials),
      options_(std::move(options)),
      limit_(options_.most_in_flight),
      multi_(curl()->multi_init()),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      poll_(epoll_create1(EPOLL_CLOEXEC)),
      random_(static_cast<unsigned>(base::monotonic_ns())) {
  epoll_event event{.events = EPOLLIN, .data = {.fd = wake_.get()}};
  epoll_ctl(poll_.get(), EPOLL_CTL_ADD, wake_.get(), &event);
  const CurlApi& api = *curl();
  api.multi_set(multi_, CURLMOPT_MAXCONNECTS, static_cast<long>(options_.most_in_flight));
  api.multi_set(multi_, CURLMOPT_SOCKETFUNCTION, &watch_socket);
  api.multi_set(multi_, CURLMOPT_SOCKETDATA, this);
  api.multi_set(multi_, CURLMOPT_TIMERFUNCTION, &set_timer);
  api.multi_set(multi_, CURLMOPT_TIMERDATA, this);
}

Client::~Client() {
  for (auto& [handle, job] : running_) curl()->multi_remove(multi_, handle);
  running_.clear();
  spare_.clear();
  curl()->multi_cleanup(multi_);
}

void Client::get(GetWish wish, Done done) {
  auto job = std::make_unique<Job>();
  job->wish = std::move(wish);
  job->done = std::move(done);
  const auto at = job->wish.is_urgent ? ready_.begin() : ready_.end();
  ready_.insert(at, std::move(job));
}

void Client::list(ListWish wish, ListDone done) {
  auto job = std::make_unique<Job>();
  job->is_listing = true;
  job->wish.bucket = std::move(wish.bucket);
  job->query = {{"list-type", "2"}, {"max-keys", std::to_string(wish.most)}};
  if (!wish.prefix.empty()) job->query.emplace_back("prefix", std::move(wish.prefix));
  if (!wish.delimiter.empty()) job->query.emplace_back("delimiter", std::move(wish.delimiter));
  if (!wish.token.empty()) job->query.emplace_back("continuation-token", wish.token);
  job->done = [done = std::move(done), token = std::move(wish.token)](Outcome& outcome) {
    ListPage page;
    if (outcome.error == 0 && (!parse_list_page(outcome.http.body, page) ||
                               (!page.next_token.empty() && page.next_token == token))) {
      outcome.error = EIO;
      outcome.kind = "listing";
      outcome.trouble = "the store's listing is damaged";
    }
    done(outcome, page);
  };
  ready_.push_back(std::move(job));
}

void Client::wake() {
  // Pairs with the exchange in step: either we see its false, or it goes on to look for news.
  if (!is_woken_.exchange(true, std::memory_order_seq_cst)) eventfd_write(wake_.get(), 1);
}

void Client::start_ready() {
  const std::uint64_t now = base::monotonic_ns();
  while (!later_.empty() && later_.begin()->first <= now) {
    ready_.push_front(std::move(later_.begin()->second));
    later_.erase(later_.begin());
  }
  while (!ready_.empty() && in_flight_ < limit_.now()) {
    JobPointer job = std::move(ready_.front());
    ready_.pop_front();
    start(std::move(job));
  }
}

void Client::start(JobPointer job) {
  job->started_ns = base::monotonic_ns();
  if (job->until_ns == 0) job->until_ns = job->started_ns + options_.timeout_s * 1000 * k_ns_of_ms;
  const std::time_t now = std::time(nullptr);
  const auto credentials = credentials_.current(now);
  if (!credentials) {
    fail(*job, EACCES, credentials_.why());
    job->outcome.kind = "credentials";
    return finish(std::move(job));
  }
  HttpRequest request = place_.request(job->wish.bucket, job->wish.key);
  request.query = job->query;
  const GetWish& wish = job->wish;
  if (!job->is_listing) {
    if (wish.range) {
      request.headers.emplace_back("range", fmt::format("bytes={}-{}", wish.range->first,
                                                        wish.range->first + wish.range->bytes - 1));
    } else {
      request.headers.emplace_back("x-amz-checksum-mode", "ENABLED");
    }
    if (!wish.if_match.empty())
      request.headers.emplace_back("if-match", "\"" + wish.if_match + "\"");
    if (!wish.if_none_match.empty())
      request.headers.emplace_back("if-none-match", "\"" + wish.if_none_match + "\"");
  }
  job->signed_with = *credentials;
  signer_.sign(request, *credentials, place_.signed_region(), now + clock_ahead_);
  if (spare_.empty()) spare_.push_back(std::make_unique<Transfer>());
  job->transfer = std::move(spare_.back());
  spare_.pop_back();
  const std::uint64_t left_ms =
      (std::max(job->until_ns, job->started_ns) - job->started_ns) / k_ns_of_ms + 1;
  const auto begin = [raw = job.get()](const HttpAnswer& head, Transfer::Room& room) {
    Outcome& outcome = raw->outcome;
    if (!read_head(head, raw->wish, outcome) || !raw->wish.begin) return 0;
    const int error = raw->wish.begin(outcome, room);
    // The store sends all of the object.
    if (outcome.ignores_range) room.skip = raw->wish.range->first;
    return error;
  };
  job->transfer->prepare(request, "", begin, {.ca_bundle = place_.ca_bundle},
                         static_cast<int>(left_ms));
  ++figures_.requests;
  ++in_flight_;
  CURL* const handle = job->transfer->handle();
  curl()->multi_add(multi_, handle);
  running_.emplace(handle, std::move(job));
}

int Client::watch_socket(CURL* /*handle*/, curl_socket_t socket, int wish, void* self,
                         void* /*watched*/) {
  const int poll = static_cast<Client*>(self)->poll_.get();
  // A socket that was closed has left by itself.
  if (wish == CURL_POLL_REMOVE) return epoll_ctl(poll, EPOLL_CTL_DEL, socket, nullptr), 0;
  epoll_event event{.events = 0, .data = {.fd = socket}};
  if ((wish & CURL_POLL_IN) != 0) event.events |= EPOLLIN;
  if ((wish & CURL_POLL_OUT) != 0) event.events |= EPOLLOUT;
  if (epoll_ctl(poll, EPOLL_CTL_MOD, socket, &event) != 0)
    epoll_ctl(poll, EPOLL_CTL_ADD, socket, &event);
  return 0;
}

int Client::set_timer(CURLM* /*multi*/, long ms, void* self) {
  static_cast<Client*>(self)->timer_ns_ =
      ms < 0 ? UINT64_MAX : base::monotonic_ns() + static_cast<std::uint64_t>(ms) * k_ns_of_ms;
  return 0;
}

int Client::ms_to_wait(int most_ms) const {
  const std::uint64_t due =
      std::min(timer_ns_, later_.empty() ? UINT64_MAX : later_.begin()->first);
  const std::uint64_t now = base::monotonic_ns();
  const std::uint64_t wait = due > now ? (due - now - 1) / k_ns_of_ms + 1 : 0;
  return static_cast<int>(std::min<std::uint64_t>(static_cast<unsigned>(most_ms), wait));
}

void Client::step(int most_ms) {
  const CurlApi& api = *curl();
  int running = 0;
  start_ready();
  epoll_event events[64];
  const int ready = epoll_wait(poll_.get(), events, std::size(events), ms_to_wait(most_ms));
  for (int i = 0; i < ready; ++i) {
    const int fd = events[i].data.fd;
    if (fd == wake_.get()) {
      eventfd_t unused;
      eventfd_read(fd, &unused);
      is_woken_.exchange(false, std::memory_order_seq_cst);
      continue;
    }
    int what = 0;
    if ((events[i].events & EPOLLIN) != 0) what |= CURL_CSELECT_IN;
    if ((events[i].events & EPOLLOUT) != 0) what |= CURL_CSELECT_OUT;
    if ((events[i].events & (EPOLLERR | EPOLLHUP)) != 0) what |= CURL_CSELECT_ERR;
    api.multi_act(multi_, fd, what, &running);
  }
  if (timer_ns_ <= base::monotonic_ns()) {
    timer_ns_ = UINT64_MAX;
    api.multi_act(multi_, CURL_SOCKET_TIMEOUT, 0, &running);
  }
  collect();
}

void Client::run_until_idle() {
  constexpr int k_wait_ms = 1000;
  while (!is_idle()) step(k_wait_ms);
}

void Client::collect() {
  int left = 0;
  while (CURLMsg* const message = curl()->multi_next(multi_, &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    CURL* const handle = message->easy_handle;
    const CURLcode code = message->data.result;  // gone after the removal
    curl()->multi_remove(multi_, handle);
    const auto found = running_.find(handle);
    JobPointer job = std::move(found->second);
    running_.erase(found);
    --in_flight_;
    job->transfer->end(code);
    judge(std::move(job));
  }
}

void Client::judge(JobPointer job) {
  Outcome& outcome = job->outcome;
  outcome.http = std::move(job->transfer->answer());
  const bool is_answer = outcome.http.status != 0;
  if (is_answer) {
    ++outcome.answers;
    ++figures_.answers;
    figures_.first_byte_ns += static_cast<std::uint64_t>(outcome.http.first_byte_seconds * 1e9);
  }
  if (outcome.http.status / 100 == 2) {
    outcome.received += outcome.http.body_bytes;
    figures_.bytes += outcome.http.body_bytes;
  }
  const Next next = judge_answer(*job);
  spare_.push_back(std::move(job->transfer));
  if (next == Next::done || next == Next::fail) return finish(std::move(job));
  std::uint64_t wait_ms = 0;
  if (next == Next::again_later) {
    const double random = static_cast<double>(random_() - random_.min()) /
                          static_cast<double>(random_.max() - random_.min() + 1.0);
    wait_ms = std::max(backoff_ms(job->attempts, random),
                       retry_after_ms(outcome.http.header("retry-after")));
  }
  retry(std::move(job), wait_ms);
}

void Client::retry(JobPointer job, std::uint64_t wait_ms) {
  ++job->attempts;
  ++figures_.retries;
  const std::uint64_t at = base::monotonic_ns() + wait_ms * k_ns_of_ms;
  if (at >= job->until_ns) {
    const bool was_late = job->outcome.http.curl == CURLE_OPERATION_TIMEDOUT;
    job->outcome.error = was_late ? ETIMEDOUT : EIO;
    // The bound cuts the last attempt short, which says nothing about the store.
    if (was_late && !job->trouble_before.empty()) job->outcome.trouble = job->trouble_before;
    job->outcome.trouble +=
        fmt::format("; given up after {} attempts in {} s", job->attempts, options_.timeout_s);
    return finish(std::move(job));
  }
  if (options_.note) options_.note(job->outcome.kind, job->outcome.trouble + "; it is retried");
  later_.emplace(at, std::move(job));
}

void Client::fail(Job& job, int error, const std::string& text) {
  job.outcome.error = error;
  job.outcome.trouble = fmt::format("s3://{}/{}: {}", job.wish.bucket, job.wish.key, text);
}

void Client::finish(JobPointer job) {
  Outcome& outcome = job->outcome;
  outcome.retries = job->attempts;
  if (!outcome.trouble.empty() && outcome.error != ENOENT && outcome.error != ESTALE) {
    ++figures_.failed;
    if (options_.note) options_.note(outcome.kind, outcome.trouble);
  }
  if (outcome.error == 0) limit_.note_success();
  job->done(outcome);
}

// Compares the bytes with what the store says about them.
bool Client::is_intact(const Job& job) {
  const HttpAnswer& http = job.outcome.http;
  const GetWish& wish = job.wish;
  const auto* const room = reinterpret_cast<const char*>(job.transfer->room().at);
  const std::string_view bytes =
      room != nullptr ? std::string_view(room, http.body_bytes) : std::string_view(http.body);
  if (wish.range) {
    const auto left = job.outcome.size - std::min(job.outcome.size, wish.range->first);
    if (http.body_bytes != std::min(wish.range->bytes, left)) return false;
    if (http.body_bytes != job.outcome.size) return true;
  }
  if (wish.expected_bytes && http.body_bytes != *wish.expected_bytes) return false;
  return Fingerprint(http, job.outcome.etag).is_of(bytes);
}

// False: the answer is not for the range that was asked for, nor for the whole object.
bool Client::read_head(const HttpAnswer& http, const GetWish& wish, Outcome& outcome) {
  outcome.etag = without_quotes(http.header("etag"));
  outcome.has_weak_etag = http.header("etag").starts_with("W/");
  outcome.modified = http_time(http.header("last-modified"));
  outcome.ignores_range = wish.range && http.status == 200;
  const auto size = wish.range && !outcome.ignores_range
                        ? size_of_range(http.header("content-range"), wish.range->first)
                        : number(http.header("content-length"));
  outcome.is_size_known = size.has_value();
  outcome.size = size.value_or(http.body_bytes);
  return !wish.range || (size && (http.status == 206 || outcome.ignores_range));
}

Client::Next Client::judge_answer(Job& job) {
  Outcome& outcome = job.outcome;
  HttpAnswer& http = outcome.http;
  outcome.error = 0;
  job.trouble_before = std::exchange(outcome.trouble, {});
  const bool is_cut =
      (job.wish.may_be_cut || outcome.ignores_range) && job.transfer->has_overflowed();
  if (!http.is_whole() && !is_cut) {
    if (const int error = job.transfer->begin_error(); error != 0) {
      outcome.error = error;
      return Next::fail;
    }
    if (job.transfer->has_overflowed() && job.wish.range) {
      outcome.kind = "range";
      fail(job, EIO, "the store has sent more than the range that was asked for");
      return Next::fail;
    }
    if (job.transfer->has_overflowed()) {
      fail(job, EFBIG, "the object is larger than it was listed");
      outcome.kind = "larger";
      return Next::fail;
    }
    outcome.kind = fmt::format("curl {}", static_cast<int>(http.curl));
    fail(job, EIO, http.trouble(""));
    const bool is_final =
        http.curl == CURLE_PEER_FAILED_VERIFICATION || http.curl == CURLE_SSL_CACERT_BADFILE ||
        http.curl == CURLE_UNSUPPORTED_PROTOCOL || http.curl == CURLE_URL_MALFORMAT;
    return is_final ? Next::fail : Next::again_later;
  }
  if (http.status != 200 && http.status != 206 && http.status != 304) {
    const std::string code = xml_text(http.body, k_code);
    outcome.kind = fmt::format("{} {}", http.status, code);
    return judge_error(job, code);
  }
  const bool has_range = read_head(http, job.wish, outcome);
  outcome.bytes = http.body_bytes;
  outcome.is_unchanged = http.status == 304;
  if (outcome.is_unchanged || job.is_listing) return Next::done;
  if (!has_range) {
    outcome.kind = "range";
    fail(job, EIO, "the store ignores ranges, and names no length");
    return Next::fail;
  }
  // Every S3 store sends one, so a proxy or a login page has answered.
  if (outcome.etag.empty()) {
    outcome.kind = "no ETag";
    fail(job, EIO, "an answer without an ETag, as no S3 store sends");
    return Next::again_later;
  }
  if (is_cut && !outcome.ignores_range) return Next::done;
  if (!is_intact(job)) {
    outcome.kind = "damaged";
    fail(job, EIO, "the bytes that came are not those that the store names");
    return Next::again_later;
  }
  return Next::done;
}

Client::Next Client::judge_error(Job& job, const std::string& code) {
  const HttpAnswer& http = job.outcome.http;
  const int status = http.status;
  fail(job, EIO, http.trouble(k_code));
  std::string region(http.header("x-amz-bucket-region"));
  if (region.empty()) region = xml_text(http.body, "Error/Region");
  if ((status == 301 || status == 307 || status == 400) && is_region_name(region) &&
      !std::exchange(job.has_moved, true)) {
    place_.region = region;
    return Next::again_now;
  }
  if (code == "RequestTimeTooSkewed" && http.date != 0 && !std::exchange(job.has_new_clock, true)) {
    clock_ahead_ = http.date - std::time(nullptr);
    return Next::again_now;
  }
  if ((code == "ExpiredToken" || code == "InvalidToken" || code == "TokenRefreshRequired") &&
      !std::exchange(job.has_new_credentials, true)) {
    credentials_.refused(job.signed_with);
    return Next::again_now;
  }
  if (code == "SlowDown" || status == 503 || status == 429)
    limit_.note_slow_down(job.started_ns, base::monotonic_ns());
  if (code == "SlowDown" || code == "RequestTimeout" || code == "InternalError" || status == 429 ||
      status == 408 || (status >= 500 && status != 501))
    return Next::again_later;
  if (code == "NoSuchBucket") {
    fail(job, EIO,
         fmt::format(
             "there is no bucket {} at {} (CUBESHIM_BUCKETS, AWS_ENDPOINT_URL, AWS_REGION)",
             job.wish.bucket,
             place_.endpoint.empty() ? "AWS, region " + place_.signed_region() : place_.endpoint));
    return Next::fail;
  }
  job.outcome.error = status == 401 || status == 403 || code == "ExpiredToken" ? EACCES
                      : status == 404                                          ? ENOENT
                      : status == 412                                          ? ESTALE
                                                                               : EIO;
  return Next::fail;
}

}  // namespace cube::s3
