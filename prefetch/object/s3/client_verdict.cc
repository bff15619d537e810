// Part of Client: decides after each answer whether the request is done, has failed, or is retried,
// and when.
#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <utility>

#include "cache/base/clock.h"
#include "cache/base/words.h"
#include "prefetch/object/s3/client_job.h"
#include "prefetch/object/s3/fingerprint.h"
#include "prefetch/object/s3/xml.h"

namespace cube::s3 {
namespace {

constexpr const char* k_code = "Error/Code";

// The object's size, from "bytes FIRST-LAST/SIZE".
std::optional<std::uint64_t> size_of_range(std::string_view range, std::uint64_t first) {
  const std::size_t slash = range.find('/');
  if (slash == std::string_view::npos || !range.starts_with(fmt::format("bytes {}-", first)))
    return std::nullopt;
  return base::number_of(range.substr(slash + 1));
}

// Checks a region name, because it becomes part of a host name and of the signature.
bool is_region_name(std::string_view name) {
  constexpr std::size_t k_longest = 63;
  return !name.empty() && name.size() <= k_longest && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
}

}  // namespace

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
    wait_ms = backoff_ms(job->attempts, random);
    // MinIO asks for a wait of 60 s or more with each 503, even if it is busy only for a moment. A
    // longer wait than the request has left would only make it fail.
    const std::uint64_t asked_ms = retry_after_ms(outcome.http.header("retry-after"));
    if (base::monotonic_ns() + asked_ms * k_ns_of_ms < job->until_ns)
      wait_ms = std::max(wait_ms, asked_ms);
  }
  retry(std::move(job), wait_ms);
}

void Client::retry(JobPointer job, std::uint64_t wait_ms) {
  ++job->attempts;
  ++figures_.retries;
  const std::uint64_t now = base::monotonic_ns(), at = now + wait_ms * k_ns_of_ms;
  if (at >= job->until_ns) {
    const bool was_late = job->outcome.http.curl == CURLE_OPERATION_TIMEDOUT;
    job->outcome.error = was_late ? ETIMEDOUT : EIO;
    // If the time limit has cut off the last attempt, the error of the attempt before it says more
    // about the store.
    if (was_late && !job->trouble_before.empty()) job->outcome.trouble = job->trouble_before;
    const std::uint64_t begun_ns = job->until_ns - options_.timeout_s * 1000 * k_ns_of_ms;
    job->outcome.trouble +=
        fmt::format("; given up after {} attempt{} in {:.1f} s", job->attempts,
                    job->attempts == 1 ? "" : "s", static_cast<double>(now - begun_ns) / 1e9);
    return finish(std::move(job));
  }
  if (options_.note) options_.note(job->outcome.kind, job->outcome.trouble + "; it is retried");
  later_.emplace(at, std::move(job));
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
    fail(job, EIO, "the store ignores ranges, and gives no length");
    return Next::fail;
  }
  // Every S3 store sends an ETag, so this answer comes from a proxy or a login page.
  if (outcome.etag.empty()) {
    outcome.kind = "no ETag";
    fail(job, EIO, "the answer has no ETag, which every S3 store sends");
    return Next::again_later;
  }
  if (is_cut && !outcome.ignores_range) return Next::done;
  if (!is_intact(job)) {
    outcome.kind = "damaged";
    fail(job, EIO, "the bytes do not match the checksum of the store");
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
    moved_.try_emplace(job.wish.bucket, place_).first->second.region = region;
    return Next::again_now;
  }
  if (code == "RequestTimeTooSkewed" && http.date() != 0 &&
      !std::exchange(job.has_new_clock, true)) {
    clock_ahead_ = http.date() - std::time(nullptr);
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
    const Place& place = place_of(job.wish.bucket);
    fail(job, EIO,
         fmt::format(
             "there is no bucket {} at {} (CUBESHIM_BUCKETS, AWS_ENDPOINT_URL, AWS_REGION)",
             job.wish.bucket,
             place.endpoint.empty() ? "AWS, region " + place.signed_region() : place.endpoint));
    return Next::fail;
  }
  job.outcome.error = status == 401 || status == 403 || code == "ExpiredToken" ? EACCES
                      : status == 404                                          ? ENOENT
                      : status == 412                                          ? ESTALE
                                                                               : EIO;
  return Next::fail;
}

// Returns false if the answer contains neither the requested range nor the whole object.
bool Client::read_head(const HttpAnswer& http, const GetWish& wish, Outcome& outcome) {
  outcome.etag = without_quotes(http.header("etag"));
  outcome.has_weak_etag = http.header("etag").starts_with("W/");
  outcome.modified = http_time(http.header("last-modified"));
  outcome.ignores_range = wish.range && http.status == 200;
  const auto size = wish.range && !outcome.ignores_range
                        ? size_of_range(http.header("content-range"), wish.range->first)
                        : base::number_of(http.header("content-length"));
  outcome.is_size_known = size.has_value();
  outcome.size = size.value_or(http.body_bytes);
  return !wish.range || (size && (http.status == 206 || outcome.ignores_range));
}

// Compares the bytes with the checksum that the store has sent.
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

void Client::fail(Job& job, int error, const std::string& text) {
  job.outcome.error = error;
  job.outcome.trouble = fmt::format("s3://{}/{}: {}", job.wish.bucket, job.wish.key, text);
}

}  // namespace cube::s3
