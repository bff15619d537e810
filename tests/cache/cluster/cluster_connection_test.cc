// One connection to a server that sends its bytes in parts.
#include "cache/tier/cluster/cluster_connection.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include "cache/tier/cluster/cluster_key.h"

namespace cube::cache {
namespace {

struct Sockets {
  base::UniqueFd client, server;
};

Sockets connected_pair() {
  const base::UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(bind(listener.get(), any, size), 0);
  EXPECT_EQ(listen(listener.get(), 1), 0);
  getsockname(listener.get(), any, &size);
  Sockets pair;
  pair.client = base::UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(pair.client.get(), any, size), 0);
  pair.server = base::UniqueFd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const int on = 1;
  setsockopt(pair.server.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return pair;
}

class Listener final : public ClusterConnection::Listener {
 public:
  std::byte* room_for(ClusterConnection::Tag, std::uint64_t bytes) override {
    return room.data() + (room.size() < bytes ? room.size() : 0);
  }
  bool answered(ClusterConnection::Tag, const MetaAnswer& answer) override {
    taken += answer.size;
    return true;
  }
  std::array<std::byte, 200'000> room{};
  std::uint64_t taken = 0;
};

class ClusterConnectionTest : public testing::Test {
 protected:
  ClusterConnectionTest() { connect(); }
  void connect() {
    Sockets pair = connected_pair();
    connection_.adopt(std::move(pair.client), {}, 1);
    server_ = std::move(pair.server);
    pump(POLLOUT);
  }
  // Sends a request, and returns the bytes that the server receives.
  std::string ask() {
    token_ = connection_.next_token(7);
    connection_.send(7, MetaCommand::get(ClusterKey("t", 1, "a").text(), token_, 0));
    EXPECT_TRUE(connection_.push_out());
    char command[512];
    const ssize_t n = recv(server_.get(), command, sizeof command, 0);
    EXPECT_GT(n, 0);
    return {command, static_cast<std::size_t>(std::max<ssize_t>(n, 0))};
  }
  void say(const std::string& bytes) {
    EXPECT_EQ(::send(server_.get(), bytes.data(), bytes.size(), 0), std::ssize(bytes));
  }
  std::string line(std::size_t bytes) const {
    char text[64];
    std::snprintf(text, sizeof text, "VA %zu c5 O%llx\r\n", bytes,
                  static_cast<unsigned long long>(token_));
    return text;
  }
  bool is_readable(int within_ms) {
    pollfd polled = connection_.to_poll();
    return poll(&polled, 1, within_ms) == 1;
  }
  void pump(short events) {
    pollfd polled = connection_.to_poll();
    polled.revents = events;
    EXPECT_TRUE(connection_.pump(polled, listener_, 2));
  }

  ClusterConnection connection_;
  Listener listener_;
  std::uint64_t token_ = 0;
  base::UniqueFd server_;
};

constexpr int k_long_ms = 60'000;

TEST_F(ClusterConnectionTest, RestOfAValueWakesOnceAndAShortAnswerImmediately) {
  ask();
  say(line(100'000) + std::string(10'000, 'x'));
  ASSERT_TRUE(is_readable(k_long_ms));
  pump(POLLIN);
  say("x");
  EXPECT_FALSE(is_readable(50)) << "one byte of 90,000";
  say(std::string(89'999, 'x') + "\r\n");
  ASSERT_TRUE(is_readable(k_long_ms));
  pump(POLLIN);
  EXPECT_EQ(listener_.taken, 100'000U);
  ask();
  say(line(1) + "y\r\n");
  ASSERT_TRUE(is_readable(k_long_ms));
  pump(POLLIN);
  EXPECT_EQ(listener_.taken, 100'001U);
}

TEST_F(ClusterConnectionTest, CloseWithinAValueIsDetected) {
  ask();
  say(line(100'000) + std::string(10'000, 'x'));
  ASSERT_TRUE(is_readable(k_long_ms));
  pump(POLLIN);
  server_.reset();
  ASSERT_TRUE(is_readable(k_long_ms));
  pollfd polled = connection_.to_poll();
  polled.revents = POLLIN;
  EXPECT_FALSE(connection_.pump(polled, listener_, 2));
}

TEST_F(ClusterConnectionTest, NewConnectionSendsNoRestOfAnInterruptedValue) {
  // More bytes than the sockets can buffer.
  const std::vector<std::byte> large(16 << 20);
  const ClusterConnection::Bytes parts[] = {large};
  const std::uint64_t token = connection_.next_token(7);
  connection_.send(7, MetaCommand::add(ClusterKey("t", 1, "a").text(), token, large.size()), parts);
  ASSERT_TRUE(connection_.push_out());
  connect();
  EXPECT_TRUE(ask().starts_with("mg "));
}

TEST_F(ClusterConnectionTest, AnswerToAnotherCommandEndsTheConnection) {
  for (const std::uint64_t off : {0, 1}) {
    const std::uint64_t token = connection_.next_token(7);
    connection_.send(7, MetaCommand::remove(ClusterKey("t", 1, "a").text(), token, 5));
    ASSERT_TRUE(connection_.push_out());
    char text[64];
    std::snprintf(text, sizeof text, "HD O%llx\r\n", static_cast<unsigned long long>(token + off));
    say(text);
    ASSERT_TRUE(is_readable(k_long_ms));
    pollfd polled = connection_.to_poll();
    polled.revents = POLLIN;
    EXPECT_EQ(connection_.pump(polled, listener_, 2), off == 0);
  }
}

}  // namespace
}  // namespace cube::cache
