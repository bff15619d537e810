#include "shim/cli/pool/pool_talk.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

#include "cache/base/clock.h"
#include "cache/base/error_text.h"
#include "cache/tier/cluster/dns/dns_query.h"
#include "cache/tier/cluster/meta_protocol.h"
#include "shim/cli/pool/pool.h"
#include "shim/cli/run/program_file.h"

namespace cube::cli {
namespace {

constexpr std::size_t k_longest_line = 1 << 20;

bool waits_for(int fd, short events, PoolTalk::Clock::time_point end) {
  while (true) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(end - PoolTalk::Clock::now()).count();
    pollfd one{fd, events, 0};
    const int n = poll(&one, 1, static_cast<int>(std::max<long>(left, 0)));
    if (n > 0) return true;
    if (left <= 0 || (n < 0 && errno != EINTR)) return false;
  }
}

}  // namespace

bool PoolTalk::fail(std::string why) {
  trouble_ = std::move(why);
  close();
  return false;
}

bool PoolTalk::open(const cache::ServerAddress& address, std::string_view login,
                    Clock::time_point end) {
  in_.clear();
  trouble_.clear();
  fd_ = base::UniqueFd(socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd_) return fail(base::text_of_error(errno));
  const int on = 1;
  setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  int error = connect(fd_.get(), &address.any, address.bytes) != 0 ? errno : 0;
  if (error == EINPROGRESS) {
    if (!waits_for(fd_.get(), POLLOUT, end)) return fail("no answer to a connect");
    socklen_t size = sizeof error;
    getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  }
  if (error != 0) return fail(base::text_of_error(error));
  if (login.empty()) return true;
  const std::string_view parts[] = {cache::MetaCommand::login(login.size()).text(), login, "\r\n"};
  std::string line;
  if (!send(parts, end) || !read_line(line, end)) return false;
  return line == "STORED" || fail(line);
}

bool PoolTalk::send(std::span<const std::string_view> parts, Clock::time_point end) {
  if (!fd_) return false;
  for (std::string_view part : parts) {
    while (!part.empty()) {
      const ssize_t n = ::send(fd_.get(), part.data(), part.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n >= 0) {
        part.remove_prefix(static_cast<std::size_t>(n));
      } else if (errno == EAGAIN) {
        if (!waits_for(fd_.get(), POLLOUT, end)) return fail("no answer");
      } else if (errno != EINTR) {
        return fail(base::text_of_error(errno));
      }
    }
  }
  return true;
}

bool PoolTalk::read_more(Clock::time_point end) {
  if (!fd_) return false;
  if (!waits_for(fd_.get(), POLLIN, end)) return fail("no answer");
  char some[16384];
  const ssize_t n = recv(fd_.get(), some, sizeof some, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (n == 0) return fail("it has closed the connection");
  if (n < 0) return fail(base::text_of_error(errno));
  in_.append(some, static_cast<std::size_t>(n));
  return true;
}

bool PoolTalk::read_line(std::string& line, Clock::time_point end) {
  std::size_t bytes = 0;
  while ((bytes = cache::meta_line_bytes(in_)) == 0) {
    if (in_.size() > k_longest_line) return fail("it is not memcached");
    if (!read_more(end)) return false;
  }
  line = in_.substr(0, bytes - 2);
  in_.erase(0, bytes);
  return true;
}

bool PoolTalk::read_value(std::size_t size, std::string& value, Clock::time_point end) {
  if (size > k_longest_value) return fail("a value is too long");
  while (in_.size() < size + 2) {
    if (!read_more(end)) return false;
  }
  value = in_.substr(0, size);
  in_.erase(0, size + 2);
  return true;
}

bool PoolTalk::ask(std::string_view question, std::string& line, Clock::time_point end) {
  const std::string_view parts[] = {question, "\r\n"};
  return send(parts, end) && read_line(line, end);
}

std::optional<std::map<std::string, std::string>> PoolTalk::figures(std::string_view question,
                                                                    Clock::time_point end) {
  std::map<std::string, std::string> all;
  std::string line;
  bool is_there = ask(question, line, end);
  for (std::size_t i = 0; is_there && line != "END"; ++i) {
    const cache::MetaAnswer answer = cache::parse_meta_answer(line);
    constexpr std::size_t k_most_lines = 10'000;
    if (answer.kind != cache::MetaAnswer::Kind::figure || i > k_most_lines) {
      fail(line);
      return std::nullopt;
    }
    all[std::string(answer.name)] = answer.text;
    is_there = read_line(line, end);
  }
  if (!is_there) return std::nullopt;
  return all;
}

std::optional<cache::ServerAddress> look_up_server(const std::string& name,
                                                   PoolTalk::Clock::time_point end,
                                                   std::string& why) {
  cache::DnsQuery query;
  query.begin(name, base::monotonic_ns());
  while (query.is_under_way()) {
    constexpr int k_look_pause_ms = 20;
    pollfd one = query.to_poll();
    if (PoolTalk::Clock::now() >= end) {
      why = "no name server answers";
      return std::nullopt;
    }
    poll(&one, 1, k_look_pause_ms);
    query.pump(base::monotonic_ns());
  }
  why = query.why();
  if (!query.has_address()) return std::nullopt;
  return query.address();
}

std::optional<std::map<std::string, std::string>> ask_memcached(const std::string& address,
                                                                unsigned port,
                                                                std::string_view question,
                                                                int timeout_ms) {
  const auto end = PoolTalk::Clock::now() + std::chrono::milliseconds(timeout_ms);
  const bool is_any = address == "0.0.0.0" || address == "::";
  const auto server = cache::parse_server_address(
      with_port(is_any ? (address == "::" ? "::1" : "127.0.0.1") : address, port), {});
  PoolTalk talk;
  if (!server || !talk.open(*server, {}, end)) return std::nullopt;
  return talk.figures(question, end);
}

}  // namespace cube::cli
