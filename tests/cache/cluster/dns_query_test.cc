// Look-ups of server names: the messages, and queries to fake name servers.
#include "cache/tier/cluster/dns/dns_query.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "cache/base/clock.h"

namespace cube::cache {
namespace {

constexpr std::uint64_t k_ms = 1'000'000;

std::string text_of(const ServerAddress& address) {
  char text[INET6_ADDRSTRLEN] = {};
  const bool is_v4 = address.family() == AF_INET;
  inet_ntop(address.family(),
            is_v4 ? static_cast<const void*>(&address.v4.sin_addr) : &address.v6.sin6_addr, text,
            sizeof text);
  return std::string(text) + " " +
         std::to_string(ntohs(is_v4 ? address.v4.sin_port : address.v6.sin6_port));
}

// The data of a name server: addresses by name, and an error number for all other names.
struct Zone {
  std::map<std::string, std::vector<std::string>> v4, v6;
  unsigned code_else = 3;
};

struct Question {
  std::string name;
  unsigned type = 0;
  std::size_t size = 0;  // bytes of the question
};
Question question_of(const std::string& bytes) {
  Question question;
  std::size_t at = 12;
  while (at < bytes.size() && bytes[at] != 0) {
    const auto n = static_cast<unsigned char>(bytes[at]);
    question.name += (question.name.empty() ? "" : ".") + bytes.substr(at + 1, n);
    at += n + 1U;
  }
  question.type = static_cast<unsigned char>(bytes[at + 2]);
  question.size = at + 5;
  return question;
}

std::string answer_to(const std::string& bytes, const Zone& zone) {
  const Question question = question_of(bytes);
  const auto& all = question.type == 1 ? zone.v4 : zone.v6;
  const auto found = all.find(question.name);
  const bool is_known = zone.v4.contains(question.name) || zone.v6.contains(question.name);
  std::string answer = bytes.substr(0, question.size);
  answer[2] = static_cast<char>(0x81);
  answer[3] = static_cast<char>(0x80 | (is_known ? 0 : zone.code_else));
  if (found == all.end()) return answer;
  // The name is an alias of another name.
  answer += std::string("\xc0\x0c\0\x05\0\x01\0\0\0\x05\0\x04\x01x\xc0\x0c", 16);
  answer[7] = static_cast<char>(found->second.size() + 1);
  for (const std::string& text : found->second) {
    char address[16];
    inet_pton(question.type == 1 ? AF_INET : AF_INET6, text.c_str(), address);
    const std::size_t n = question.type == 1 ? 4 : 16;
    answer += std::string("\xc0\x0c\0", 3) + static_cast<char>(question.type) +
              std::string("\0\x01\0\0\0\x05\0", 7) + static_cast<char>(n) + std::string(address, n);
  }
  return answer;
}

class FakeNameServer {
 public:
  using Script = std::function<std::string(const std::string& bytes)>;
  explicit FakeNameServer(Script script) : script_(std::move(script)) {
    socket_ = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    address_ = *parse_server_address("127.0.0.1:0", {});
    EXPECT_EQ(bind(socket_, &address_.any, address_.bytes), 0);
    socklen_t size = sizeof address_.v4;
    getsockname(socket_, &address_.any, &size);
    thread_ = std::thread([this] { serve(); });
  }
  explicit FakeNameServer(const Zone& zone)
      : FakeNameServer([zone](const std::string& bytes) { return answer_to(bytes, zone); }) {}
  ~FakeNameServer() {
    is_over_ = true;
    shutdown(socket_, SHUT_RDWR);
    thread_.join();
    close(socket_);
  }
  const ServerAddress& address() const { return address_; }
  // Returns the queries in their order, each as "name type".
  std::vector<std::string> asked() {
    const std::lock_guard lock(mutex_);
    return asked_;
  }

 private:
  void serve() {
    while (!is_over_) {
      char buffer[600];
      sockaddr_in from{};
      socklen_t size = sizeof from;
      const timeval often{.tv_sec = 0, .tv_usec = 20'000};
      setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &often, sizeof often);
      const ssize_t n =
          recvfrom(socket_, buffer, sizeof buffer, 0, reinterpret_cast<sockaddr*>(&from), &size);
      if (n <= 0) continue;
      const std::string bytes(buffer, static_cast<std::size_t>(n));
      const Question question = question_of(bytes);
      {
        const std::lock_guard lock(mutex_);
        asked_.push_back(question.name + (question.type == 1 ? " A" : " AAAA"));
      }
      const std::string answer = script_(bytes);
      if (!answer.empty())
        sendto(socket_, answer.data(), answer.size(), 0, reinterpret_cast<sockaddr*>(&from), size);
    }
  }

  Script script_;
  int socket_ = -1;
  ServerAddress address_;
  std::atomic<bool> is_over_{false};
  std::mutex mutex_;
  std::vector<std::string> asked_;
  std::thread thread_;
};

// Returns the address, or the reason why none was found.
std::string look_up(const std::string& server, const ResolverSettings& settings) {
  DnsQuery query;
  query.begin(server, settings, base::monotonic_ns());
  while (query.is_under_way()) {
    pollfd one = query.to_poll();
    poll(&one, 1, 5);
    query.pump(base::monotonic_ns());
  }
  return query.has_address() ? text_of(query.address()) : std::string(query.why());
}
ResolverSettings settings_of(const FakeNameServer& server, std::vector<std::string> search = {},
                             unsigned ndots = 1) {
  ResolverSettings settings;
  settings.servers = {server.address()};
  settings.search = std::move(search);
  settings.ndots = ndots;
  settings.timeout_ns = 200 * k_ms;
  return settings;
}

TEST(DnsQuery, ParsesResolvConf) {
  const auto settings = parse_resolver_settings(
      "# nameserver 9.9.9.9\nnameserver 10.96.0.10\nnameserver fd00::a ; x\nnameserver "
      "nonsense\nnameserver 10.0.0.3\nnameserver "
      "10.0.0.4\n"
      "search job.svc.cluster.local svc.cluster.local\toptions\nsearch a.b c.d\noptions ndots:5 "
      "timeout:1 attempts:3 rotate "
      "edns0\n");
  ASSERT_EQ(settings.servers.size(), 3);
  EXPECT_EQ(text_of(settings.servers[0]), "10.96.0.10 53");
  EXPECT_EQ(text_of(settings.servers[1]), "fd00::a 53");
  EXPECT_EQ(text_of(settings.servers[2]), "10.0.0.3 53");
  EXPECT_EQ(settings.search, (std::vector<std::string>{"a.b", "c.d"}));
  EXPECT_EQ(settings.ndots, 5);
  EXPECT_EQ(settings.rounds, 3);
  EXPECT_EQ(settings.timeout_ns, 1000 * k_ms);
  // The settings file is missing, or sets time limits of minutes.
  EXPECT_EQ(text_of(parse_resolver_settings("").servers.at(0)), "127.0.0.1 53");
  const auto endless =
      parse_resolver_settings("options timeout:30 attempts:99 ndots:\nnameserver 1.2.3.4");
  EXPECT_EQ(endless.timeout_ns, 2000 * k_ms);
  EXPECT_EQ(endless.rounds, 3);
  EXPECT_EQ(endless.ndots, 1);
}

TEST(DnsQuery, AppliesTheSearchListAsLibcDoes) {
  ResolverSettings settings;
  settings.search = {"job.svc.cluster.local", "svc.cluster.local"};
  settings.ndots = 5;
  using Names = std::vector<std::string>;
  EXPECT_EQ(names_to_ask("cache-0.cache", settings),
            (Names{"cache-0.cache.job.svc.cluster.local", "cache-0.cache.svc.cluster.local",
                   "cache-0.cache"}));
  EXPECT_EQ(names_to_ask("a.b.c.d.e.f", settings).front(), "a.b.c.d.e.f");
  EXPECT_EQ(names_to_ask("cache.", settings), (Names{"cache."}));
  settings.ndots = 1;
  EXPECT_EQ(names_to_ask("cache", settings).back(), "cache");
  EXPECT_EQ(names_to_ask("cache.x", settings).front(), "cache.x");
}

TEST(DnsQuery, ResolvesANameOfAKubernetesService) {
  Zone zone;
  zone.v4["cache-0.cache.svc.cluster.local"] = {"10.1.0.7"};
  FakeNameServer server(zone);
  EXPECT_EQ(look_up("cache-0.cache:11212",
                    settings_of(server, {"job.svc.cluster.local", "svc.cluster.local"}, 5)),
            "10.1.0.7 11212");
  EXPECT_EQ(server.asked(), (std::vector<std::string>{"cache-0.cache.job.svc.cluster.local A",
                                                      "cache-0.cache.svc.cluster.local A"}));
}

TEST(DnsQuery, PicksTheSameOfSeveralAddressesOnAllNodes) {
  Zone zone;
  zone.v4["cache"] = {"10.1.0.9", "10.1.0.10", "10.0.255.1"};
  FakeNameServer server(zone);
  EXPECT_EQ(look_up("cache:1", settings_of(server)), "10.0.255.1 1");
}

TEST(DnsQuery, ResolvesANameWithOnlyIPv6) {
  Zone zone;
  zone.v6["six"] = {"fd00::9", "fd00::8"};
  FakeNameServer server(zone);
  EXPECT_EQ(look_up("six:11211", settings_of(server)), "fd00::8 11211");
  EXPECT_EQ(server.asked(), (std::vector<std::string>{"six A", "six AAAA"}));
}

TEST(DnsQuery, UnknownNameFailsAfterTheSearchList) {
  FakeNameServer server{Zone{}};
  EXPECT_EQ(look_up("none:1", settings_of(server, {"x", "y"})), "there is no such name");
  EXPECT_EQ(server.asked(), (std::vector<std::string>{"none.x A", "none.y A", "none A"}));
  EXPECT_EQ(look_up(std::string(70, 'x') + ":1", settings_of(server)), "there is no such name");
}

TEST(DnsQuery, AsksTheNextServerIfOneHangsOrRefuses) {
  FakeNameServer hanging([](const std::string&) { return std::string(); });
  Zone refusing;
  refusing.code_else = 5;
  FakeNameServer refuses(refusing);
  Zone zone;
  zone.v4["cache"] = {"10.1.0.7"};
  FakeNameServer good(zone);
  auto settings = settings_of(hanging);
  settings.servers = {hanging.address(), refuses.address(), good.address()};
  EXPECT_EQ(look_up("cache:1", settings), "10.1.0.7 1");
  EXPECT_EQ(hanging.asked().size(), 1);
  EXPECT_EQ(refuses.asked().size(), 1);
  settings.servers = {hanging.address(), refuses.address()};
  EXPECT_EQ(look_up("cache:1", settings), "no name server could answer");
  EXPECT_EQ(hanging.asked().size(), 3) << "two rounds more";
}

TEST(DnsQuery, EachNameOfTheSearchListHasAllTries) {
  Zone zone;
  zone.v4["cache.b"] = {"10.1.0.7"};
  Zone failing;
  failing.code_else = 2;
  FakeNameServer server([&, asked = std::set<std::string>()](const std::string& bytes) mutable {
    const bool is_first = asked.insert(question_of(bytes).name).second;
    return answer_to(bytes, is_first ? failing : zone);
  });
  auto settings = settings_of(server, {"a", "b"});
  settings.timeout_ns = 1000'000 * k_ms;
  EXPECT_EQ(look_up("cache:1", settings), "10.1.0.7 1");
  const std::vector<std::string> twice{"cache.a A", "cache.a A", "cache.b A", "cache.b A"};
  EXPECT_EQ(server.asked(), twice);
}

TEST(DnsQuery, FailsIfNoNameServerListens) {
  ResolverSettings settings;
  { settings.servers = {FakeNameServer(Zone{}).address()}; }
  settings.timeout_ns = 1000'000 * k_ms;
  // The server refuses immediately.
  EXPECT_EQ(look_up("cache:1", settings), "no name server could answer");
}

TEST(DnsQuery, IgnoresAnAnswerToAnotherQuestion) {
  Zone zone;
  zone.v4["cache"] = {"10.1.0.7"};
  zone.v4["other"] = {"6.6.6.6"};
  for (const auto& forge : std::initializer_list<std::function<void(std::string&)>>{
           [](std::string& answer) { answer[0] ^= 1; },            // another id
           [](std::string& answer) { answer[2] &= 0x7f; },         // a question
           [](std::string& answer) { answer[13] = 'd'; },          // another name
           [](std::string& answer) { answer.resize(20); },         // half of it
           [](std::string& answer) { answer[12 + 7 + 1] = 28; }})  // another type
  {
    FakeNameServer server([&, is_first = true](const std::string& bytes) mutable {
      std::string answer = answer_to(bytes, zone);
      if (std::exchange(is_first, false)) forge(answer);
      return answer;
    });
    EXPECT_EQ(look_up("cache:1", settings_of(server)), "10.1.0.7 1");
    EXPECT_EQ(server.asked().size(), 2);
  }
}

TEST(DnsQuery, ForgedAnswerIsNotReadPastItsEnd) {
  Zone zone;
  zone.v4["cache"] = {"10.1.0.7", "10.1.0.8"};
  std::byte question[k_most_dns_bytes];
  const std::size_t asked = write_dns_question("cache", DnsType::v4, 7, question);
  const std::string whole =
      answer_to(std::string(reinterpret_cast<const char*>(question), asked), zone);
  const auto parse = [](const std::string& text) {
    // Exact size, so that a sanitizer sees its end
    const std::vector<char> exact(text.begin(), text.end());
    return parse_dns_answer(std::as_bytes(std::span(exact)), "cache", DnsType::v4, 7).kind;
  };
  EXPECT_EQ(parse(whole), DnsAnswer::Kind::address);
  for (std::size_t n = 0; n < whole.size(); ++n) {
    const auto kind = parse(whole.substr(0, n));
    EXPECT_TRUE(kind != DnsAnswer::Kind::none && kind != DnsAnswer::Kind::no_name) << n;
    for (int bit = 0; bit < 8; ++bit) {
      std::string forged = whole;
      forged[n] = static_cast<char>(forged[n] ^ (1 << bit));
      parse(forged);
    }
  }
}

}  // namespace
}  // namespace cube::cache
