// Requests objects and listings from an S3-compatible store, many at a time. The client signs and
// retries requests, adapts the limit of requests in flight, and checks the received bytes. Only
// step() blocks. Thread safety: one thread, except wake().
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "cache/base/unique_fd.h"
#include "prefetch/object/s3/credentials.h"
#include "prefetch/object/s3/http.h"
#include "prefetch/object/s3/list_page.h"
#include "prefetch/object/s3/pace.h"
#include "prefetch/object/s3/place.h"
#include "prefetch/object/s3/sign.h"

namespace cube::s3 {

// The end of a request.
struct Outcome {
  int error = 0;        // errno: EACCES, ENOENT, ESTALE (If-Match), EFBIG (no room), EIO, ETIMEDOUT
  std::string trouble;  // one line that explains the error
  std::string kind;     // the error's kind, such as "503 SlowDown"
  bool is_unchanged = false;  // If-None-Match
  std::uint64_t bytes = 0;    // of the body
  std::uint64_t size = 0;     // of the whole object
  bool is_size_known = false;
  bool ignores_range = false;  // the store has sent the whole object instead of a range
  std::time_t modified = 0;
  std::string etag;  // without its quotes
  // Weak ETags can be compared, but never match in If-Match (RFC 9110, 13.1.1).
  bool has_weak_etag = false;
  unsigned retries = 0;
  // Totals of all attempts: how often the store answered, and how many bytes of bodies arrived.
  std::uint64_t answers = 0, received = 0;
  HttpAnswer http;
};
using Done = std::function<void(Outcome&)>;

struct GetWish {
  std::string bucket, key;
  // Called with the head of a successful answer, and again after each retry, but not for an empty
  // body. The head has the object's size (if is_size_known), ETag and time. The callee makes room,
  // or returns an errno that ends the request. If the callee makes no room, the bytes are put into
  // Outcome::http.body, up to 16 MiB.
  std::function<int(const Outcome& head, Transfer::Room& room)> begin = {};
  bool is_urgent = false;  // takes precedence over other requests that wait to be sent
  // If the object is larger than the room, only the first bytes are read, up to the size of the
  // room.
  bool may_be_cut = false;
  // [first, first + bytes) of the object.
  struct Range {
    std::uint64_t first = 0, bytes = 0;
  };
  std::optional<Range> range = {};
  std::string if_match = {}, if_none_match = {};  // ETags without quotes
  std::optional<std::uint64_t> expected_bytes = {};
};

struct ListWish {
  std::string bucket, prefix = {};
  std::string delimiter = "/";
  std::string token = {};
  unsigned most = 1000;
};
using ListDone = std::function<void(Outcome&, ListPage&)>;

struct ClientOptions {
  unsigned timeout_s = 30;  // for one request, including its retries
  unsigned most_in_flight = 256;
  // Called on each retry and each failure; `kind` as in Outcome.
  std::function<void(const std::string& kind, const std::string& text)> note = {};
};

struct ClientFigures {
  std::uint64_t requests = 0, retries = 0, failed = 0, bytes = 0;
  // The attempts that the store answered, and the sum of their times to the first byte.
  std::uint64_t answers = 0, first_byte_ns = 0;
};

class Client {
 public:
  // `credentials` must outlive the client. Construct a client only if curl() is not null.
  Client(Place place, KeptCredentials& credentials, ClientOptions options);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // step() calls `done` exactly one time when the request has ended. `done` may start further
  // requests.
  void get(GetWish wish, Done done);
  void list(ListWish wish, ListDone done);

  // Works on all requests, and waits up to `most_ms` for an event.
  void step(int most_ms);
  void run_until_idle();
  // Ends a wait of step(). Callable by any thread.
  void wake();

  bool is_idle() const { return in_flight_ == 0 && ready_.empty() && later_.empty(); }
  unsigned in_flight() const { return in_flight_; }
  unsigned limit() const { return limit_.now(); }
  const ClientFigures& figures() const { return figures_; }
  // The bucket's place. Its region can change when the store answers.
  const Place& place_of(const std::string& bucket) const;

 private:
  struct Job;
  using JobPointer = std::unique_ptr<Job>;
  // libcurl reports which sockets it waits for, and for how long.
  static int watch_socket(CURL* handle, curl_socket_t socket, int wish, void* self, void* watched);
  static int set_timer(CURLM* multi, long ms, void* self);
  int ms_to_wait(int most_ms) const;
  void start_ready();
  void start(JobPointer job);
  void collect();
  void judge(JobPointer job);
  // The next step for a job that has its answer.
  enum class Next : std::uint8_t { done, again_now, again_later, fail };
  Next judge_answer(Job& job);
  Next judge_error(Job& job, const std::string& code);
  static bool read_head(const HttpAnswer& http, const GetWish& wish, Outcome& outcome);
  static bool is_intact(const Job& job);
  void fail(Job& job, int error, const std::string& text);
  void finish(JobPointer job);
  void retry(JobPointer job, std::uint64_t wait_ms);

  const Place place_;
  // By bucket. Holds a bucket only if the store has named another region for it than place_ has.
  std::map<std::string, Place> moved_;
  KeptCredentials& credentials_;
  const ClientOptions options_;
  Signer signer_;
  InFlightLimit limit_;
  ClientFigures figures_;
  CURLM* multi_;
  base::UniqueFd wake_, poll_;
  std::atomic<bool> is_woken_ = false;
  std::uint64_t timer_ns_ = UINT64_MAX;  // when libcurl must be called next
  unsigned in_flight_ = 0;
  std::time_t clock_ahead_ = 0;  // the store's clock minus ours, in seconds
  std::deque<JobPointer> ready_;
  std::multimap<std::uint64_t, JobPointer> later_;  // by the time of their next attempt
  std::map<CURL*, JobPointer> running_;
  std::vector<std::unique_ptr<Transfer>> spare_;
  std::minstd_rand random_;
};

}  // namespace cube::s3
