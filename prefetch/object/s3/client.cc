#include "prefetch/object/s3/client.h"

#include <fmt/core.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "cache/base/clock.h"
#include "prefetch/object/s3/client_job.h"

namespace cube::s3 {

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

const Place& Client::place_of(const std::string& bucket) const {
  const auto found = moved_.find(bucket);
  return found == moved_.end() ? place_ : found->second;
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
  // Pairs with the exchange in step(). Either this exchange reads the false that step() has stored,
  // or the exchange in step() comes later, and step() then looks for news.
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
  const Place& place = place_of(job->wish.bucket);
  HttpRequest request = place.request(job->wish.bucket, job->wish.key);
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
  signer_.sign(request, *credentials, place.signed_region(), now + clock_ahead_);
  if (spare_.empty()) spare_.push_back(std::make_unique<Transfer>());
  job->transfer = std::move(spare_.back());
  spare_.pop_back();
  const std::uint64_t left_ms =
      (std::max(job->until_ns, job->started_ns) - job->started_ns) / k_ns_of_ms + 1;
  const auto begin = [raw = job.get()](const HttpAnswer& head, Transfer::Room& room) {
    Outcome& outcome = raw->outcome;
    if (!read_head(head, raw->wish, outcome) || !raw->wish.begin) return 0;
    const int error = raw->wish.begin(outcome, room);
    // The store sends the whole object, so the bytes before the range are skipped.
    if (outcome.ignores_range) room.skip = raw->wish.range->first;
    return error;
  };
  job->transfer->prepare(request, "", begin, {.ca_bundle = place.ca_bundle},
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
  // The result is ignored: the kernel has already removed a closed socket.
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
    const CURLcode code = message->data.result;  // read before the removal, which frees the message
    curl()->multi_remove(multi_, handle);
    const auto found = running_.find(handle);
    JobPointer job = std::move(found->second);
    running_.erase(found);
    --in_flight_;
    job->transfer->end(code);
    judge(std::move(job));
  }
}

}  // namespace cube::s3
