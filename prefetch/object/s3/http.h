// HTTP by libcurl: one request and its answer, and the options that all requests share. Thread
// safety: any thread may call exchange(); a Transfer belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "prefetch/object/s3/curl_api.h"
#include "prefetch/object/s3/request.h"

namespace cube::s3 {

struct HttpAnswer {
  CURLcode curl = CURLE_OK;      // not OK: the exchange was aborted
  int status = 0;                // 0: there was no answer
  Pairs headers = {};            // of the last answer; names are in lower case
  std::string body = {};         // at most a few MiB of it
  std::uint64_t body_bytes = 0;  // all bytes received, including bytes put into a Room
  double seconds = 0, first_byte_seconds = 0;

  std::string_view header(std::string_view name) const;
  std::time_t date() const;  // the time by the server's clock; 0: unknown
  bool is_whole() const { return curl == CURLE_OK && status != 0; }
  // Returns a text such as "HTTP 403 AccessDenied: not yours", or the reason why there was no
  // answer. `code` is the path of the error code's element in an error document; the element of the
  // message is its sibling.
  std::string trouble(std::string_view code) const;
};

// Parses a time such as "Fri, 27 Nov 2026 17:47:38 GMT". Returns 0 if the text is not a time.
std::time_t http_time(std::string_view text);

// The settings of a connection that do not depend on the request.
struct Connection {
  std::string ca_bundle;  // empty: libcurl's default
  bool no_proxy = false;
};

// Makes one request at a time on a curl handle, and reuses the handle for later requests.
class Transfer {
 public:
  Transfer();
  ~Transfer();
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  // The buffer that receives the body of a successful answer, instead of HttpAnswer::body. If the
  // body is larger, the exchange is aborted when the room is full.
  struct Room {
    std::byte* at = nullptr;
    std::size_t bytes = 0;
    std::uint64_t skip = 0;  // bytes of the body before the wanted bytes
  };
  // Called before the first byte of a successful answer's body is stored. It makes room, or returns
  // an errno that aborts the exchange.
  using Begin = std::function<int(const HttpAnswer& head, Room& room)>;
  // Sets up the handle for a request. `body` is sent if it is not empty.
  void prepare(const HttpRequest& request, const std::string& body, Begin begin,
               const Connection& connection, int timeout_ms);
  // Notes how the exchange ended.
  void end(CURLcode code);
  CURL* handle() const { return handle_; }
  HttpAnswer& answer() { return answer_; }
  bool has_overflowed() const { return has_overflowed_; }
  int begin_error() const { return begin_error_; }
  const Room& room() const { return room_; }

 private:
  static std::size_t take_header(char* at, std::size_t size, std::size_t n, void* self);
  static std::size_t take_body(char* at, std::size_t size, std::size_t n, void* self);
  void drop_headers();

  CURL* handle_;
  curl_slist* headers_ = nullptr;
  HttpAnswer answer_;
  Room room_;
  Begin begin_;
  int begin_error_ = 0;
  bool has_overflowed_ = false, has_begun_ = false;
};

// Makes one request in the caller's thread, for credentials. Without libcurl, the answer has status
// 0.
struct Exchange {
  std::string url = {}, method = "GET", body = {};  // a body makes it a POST of a form
  Pairs headers = {};
  bool no_proxy = false;
  int timeout_ms = 0;
};
HttpAnswer exchange(const Exchange& wish);

}  // namespace cube::s3
