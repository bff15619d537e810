// Fake servers, each of which follows a script, and a client that uses them.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cache/base/clock.h"
#include "cache/tier/cluster/cluster_client.h"

namespace cube::cache {

using Outcome = ClusterClient::Outcome;
inline constexpr std::uint64_t k_ms = 1'000'000, k_patience = 60'000 * k_ms;

// Accepts connections on loopback, and passes each line to the script. A line of "ms" is passed
// together with "\r\n" and the bytes that follow. The script's answer is sent. An empty answer
// sends nothing, and "close" ends the connection.
class FakeServer {
 public:
  using Script = std::function<std::string(const std::string& line)>;
  // `greeting`: sent immediately on each new connection.
  explicit FakeServer(Script script, std::string greeting = {})
      : script_(std::move(script)), greeting_(std::move(greeting)) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(listen(listener_, 16), 0);
    socklen_t size = sizeof address;
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~FakeServer() {
    is_over_ = true;
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  std::string name() const { return "127.0.0.1:" + std::to_string(port_); }
  int connections() const { return connections_; }
  int open_connections() const { return connections_ - ended_; }

 private:
  void serve() {
    std::vector<std::thread> talks;
    for (int fd; (fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) {
      ++connections_;
      talks.emplace_back([this, fd] { talk(fd); });
    }
    for (auto& talk : talks) talk.join();
  }
  static std::size_t end_of_command(const std::string& text) {
    const std::size_t end = text.find("\r\n");
    if (end == std::string::npos || !text.starts_with("ms ")) return end;
    const std::size_t whole = end + 2 + std::strtoul(text.c_str() + text.find(' ', 3), nullptr, 10);
    return text.size() < whole + 2 ? std::string::npos : whole;
  }
  void talk(int fd) {
    const timeval often{.tv_sec = 0, .tv_usec = 20'000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &often, sizeof often);
    if (!greeting_.empty()) send(fd, greeting_.data(), greeting_.size(), MSG_NOSIGNAL);
    std::string text;
    char buffer[4096];
    while (!is_over_) {
      const ssize_t n = recv(fd, buffer, sizeof buffer, 0);
      if (n == 0) break;
      if (n < 0) continue;
      text.append(buffer, static_cast<std::size_t>(n));
      bool is_closed = false;
      for (std::size_t end; !is_closed && (end = end_of_command(text)) != std::string::npos;
           text.erase(0, end + 2)) {
        const std::string answer = script_(text.substr(0, end));
        is_closed = answer == "close";
        if (!is_closed) send(fd, answer.data(), answer.size(), MSG_NOSIGNAL);
      }
      if (is_closed) break;
    }
    close(fd);
    ++ended_;
  }

  Script script_;
  std::string greeting_;
  int listener_ = -1, port_ = 0;
  std::atomic<bool> is_over_{false};
  std::atomic<int> connections_{0}, ended_{0};
  std::thread thread_;
};

// "mg KEY v c Oabc N2" -> "abc".
inline std::string token_of(const std::string& line) {
  const std::size_t at = line.find(" O") + 2;
  return line.substr(at, line.find_first_of(" \r", at) - at);
}
inline std::string value(const std::string& line, const std::string& bytes,
                         const std::string& flags = "") {
  return "VA " + std::to_string(bytes.size()) + " c5 O" + token_of(line) + flags + "\r\n" + bytes +
         "\r\n";
}

class NoOffers final : public OfferSource {
 public:
  bool next(ClusterOffer&, std::uint64_t, bool) override {
    ++looks;
    while (hangs) std::this_thread::yield();
    if (throws) throw std::bad_alloc();
    if (const auto* const act = looked.load(); act != nullptr) (*act)();
    return false;
  }
  void end_offer(ClusterOffer&, OfferEnd) override {}
  bool is_leader() const override { return leads; }
  void note_figures(const ClusterFigures&) override {}
  void leave() override { has_left = true; }
  std::atomic<bool> has_left{false}, leads{false}, throws{false}, hangs{false};
  std::atomic<std::uint64_t> looks{0};
  std::atomic<const std::function<void()>*> looked{nullptr};  // called after each check
};

// A leader that offers one record repeatedly while the record is wanted.
class OneOffer final : public OfferSource {
 public:
  bool next(ClusterOffer& offer, std::uint64_t, bool) override {
    if (!is_wanted) return false;
    offer.key = ClusterKey("t", 1, "offered");
    offer.parts[0] = std::as_bytes(std::span(bytes));
    offer.parts[1] = offer.parts[2] = {};
    offer.lease_cas = lease_cas;
    return true;
  }
  void end_offer(ClusterOffer&, OfferEnd end) override {
    if (end == OfferEnd::accepted) is_wanted = false;
    if (end == OfferEnd::put_off) was_put_off = true;
  }
  bool is_leader() const override { return true; }
  void note_figures(const ClusterFigures&) override {}
  void leave() override {}
  std::string bytes = "the bytes";
  std::uint64_t lease_cas = 0;
  std::atomic<bool> is_wanted{true}, was_put_off{false};
};

class Running {
 public:
  explicit Running(std::vector<std::string> servers, std::uint64_t deadline_ns = k_patience,
                   bool leads = false, std::string login = {}) {
    source.leads = leads;
    ClusterClientOptions options;
    options.login = std::move(login);
    options.servers = std::move(servers);
    options.deadline_ns = deadline_ns;
    options.most_bytes = 1 << 20;
    options.rows = rows.data();
    options.stats = &stats;
    client = std::make_unique<ClusterClient>(std::move(options));
    start();
  }
  ~Running() { stop(); }
  void start(OfferSource* other = nullptr) {
    ASSERT_TRUE(client->claim_start());
    thread = std::thread([this, other] {
      try {
        client->run(other != nullptr ? *other : source);
      } catch (const std::bad_alloc&) {
        client->fail_start(/*for_good=*/true);
      }
    });
  }
  void stop() {
    if (!thread.joinable()) return;
    EXPECT_TRUE(client->stop(k_patience));
    thread.join();
  }
  Outcome get(const std::string& path, std::uint64_t at_most_ns = k_patience, unsigned lease = 0) {
    ClusterClient::Answer answer;
    client->get(ClusterKey("t", 1, path), lease, at_most_ns, answer);
    if (answer.outcome() == Outcome::hit)
      bytes.assign(reinterpret_cast<const char*>(answer.bytes().data()), answer.bytes().size());
    return answer.outcome();
  }
  std::uint64_t count(base::Counter counter) const {
    return stats.counters[static_cast<std::size_t>(counter)];
  }
  // Waits until the client has asked the source this many times.
  bool has_looked(std::uint64_t looks) {
    const std::uint64_t until = base::monotonic_ns() + k_patience;
    while (source.looks < looks && base::monotonic_ns() < until) std::this_thread::yield();
    return source.looks >= looks;
  }
  // Returns true if the client has stopped asking the server.
  bool rests(const std::string& path) {
    const std::uint64_t until = base::monotonic_ns() + k_patience;
    while (client->is_asked(ClusterKey("t", 1, path)) && base::monotonic_ns() < until)
      std::this_thread::yield();
    return !client->is_asked(ClusterKey("t", 1, path));
  }
  // Waits until the client asks the server again. Returns true if it does.
  bool is_asked_again(const std::string& path) {
    const std::uint64_t until = base::monotonic_ns() + k_patience;
    while (!client->is_asked(ClusterKey("t", 1, path)) && base::monotonic_ns() < until)
      std::this_thread::yield();
    return client->is_asked(ClusterKey("t", 1, path));
  }

  base::Stats stats{};
  std::vector<base::ServerRow> rows{base::k_server_rows};
  std::unique_ptr<ClusterClient> client;
  NoOffers source;
  std::thread thread;
  std::string bytes;
};

}  // namespace cube::cache
