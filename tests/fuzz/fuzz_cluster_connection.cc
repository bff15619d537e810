// A ClusterConnection receives arbitrary bytes from a server, in arbitrary pieces. Each answer must
// belong to the next question, each value must have the bytes that the server has sent, in the
// given room, and a connection that receives anything else must be closed. Input: steps, each of
// which is a byte and its arguments. The server knows the tokens, so that its answers are accepted.
#include "cache/tier/cluster/cluster_connection.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <cstring>
#include <deque>
#include <vector>

#include "tests/fuzz/fuzz.h"

namespace cube::cache {
namespace {

class Talk final : ClusterConnection::Listener {
 public:
  Talk(fuzz::Input input, std::string_view login) : input_(input) {
    int pair[2];
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
    server_ = pair[1];
    // The kernel raises this value to its minimum, which is too small for an offer.
    const int bytes = 1;
    FUZZ_CHECK(setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes) == 0);
    connection_.adopt(base::UniqueFd(pair[0]), login, 1);
  }
  ~Talk() { close(server_); }

  void run() {
    while (input_.left() != 0 && connection_.is_open()) step();
    // Reads the rest from the socket.
    for (int i = 0; i < 4 && connection_.is_open(); ++i) pump();
  }

 private:
  static constexpr std::size_t k_most_value = 4096;
  struct Question {
    ClusterConnection::Tag tag;
    std::uint64_t token;
  };

  void step() {
    switch (input_.byte() % 8) {
      case 0: return ask();
      case 1: return pump();
      case 2: return say(input_.text(input_.byte()));
      case 3: return answer();
      case 4: return say(input_.byte() % 2 == 0 ? "EN\r\n" : "STORED\r\n");
      case 5: return offer();
      case 6: return drain();
      default:
        if (!connection_.is_alive()) questions_.clear();
    }
  }
  void say(std::string_view text) { send(server_, text.data(), text.size(), MSG_NOSIGNAL); }
  void ask() {
    if (!connection_.is_ready() || !connection_.has_room()) return;
    const ClusterConnection::Tag tag = input_.byte() % 40;
    const std::uint64_t token = connection_.next_token(tag);
    for (const Question& other : questions_) FUZZ_CHECK(other.token != token);
    questions_.push_back({tag, token});
    connection_.send(tag, MetaCommand::get("key", token, 2));
  }
  void offer() {
    if (!connection_.is_ready() || connection_.pending() != 0 || !connection_.has_room()) return;
    static const std::vector<std::byte> bytes(20'000);
    const ClusterConnection::Bytes parts[] = {std::span(bytes).first(input_.byte()), bytes};
    const std::uint64_t token = connection_.next_token(1000);
    questions_.push_back({1000, token});
    connection_.send(1000, MetaCommand::add("key", token, 1), parts);
  }
  // Answers an open question correctly, except for the parts that the input changes.
  void answer() {
    if (questions_.empty()) return;
    const Question& question = questions_[input_.byte() % questions_.size() / 2];
    static const char* const k_words[] = {"HD", "NS", "EX", "NF", "VA"};
    const std::uint8_t word = input_.byte() % 8;
    const std::size_t size = input_.byte();
    char text[96];
    const bool has_value = word >= 4;
    const int n = has_value ? std::snprintf(text, sizeof text, "VA %zu c7 O%llx W\r\n", size,
                                            static_cast<unsigned long long>(question.token))
                            : std::snprintf(text, sizeof text, "%s O%llx\r\n", k_words[word],
                                            static_cast<unsigned long long>(question.token));
    std::string whole(text, static_cast<std::size_t>(n));
    if (has_value) whole += std::string(size, 'v') + "\r\n";
    const std::uint8_t edit = input_.byte();
    if (edit % 4 == 1) whole[input_.byte() % whole.size()] = static_cast<char>(input_.byte());
    if (edit % 4 == 2) whole.resize(input_.byte() % whole.size());
    say(whole);
  }
  void drain() const {
    char bytes[4096];
    while (recv(server_, bytes, sizeof bytes, 0) > 0) continue;
  }
  void pump() {
    const pollfd wanted = connection_.to_poll();
    const bool is_whole = connection_.pump({wanted.fd, wanted.events, POLLIN | POLLOUT}, *this, 2);
    FUZZ_CHECK(connection_.pending() <= 64);
    if (is_whole) {
      FUZZ_CHECK(!connection_.is_ready() || connection_.pending() == questions_.size(),
                 "%zu of %zu", connection_.pending(), questions_.size());
    } else {
      FUZZ_CHECK(connection_.complaint().size() <= 128);
      connection_.close();
      questions_.clear();
    }
  }

  std::byte* room_for(ClusterConnection::Tag tag, std::uint64_t bytes) override {
    FUZZ_CHECK(!questions_.empty() && questions_.front().tag == tag);
    if (bytes > k_most_value) return nullptr;
    // The room has exactly this size, so that the sanitizer detects a store past its end.
    room_ = std::vector<std::byte>(bytes + 2);
    return room_.data();
  }
  bool answered(ClusterConnection::Tag tag, const MetaAnswer& answer) override {
    FUZZ_CHECK(!questions_.empty() && questions_.front().tag == tag);
    const bool is_sure =
        answer.kind == MetaAnswer::Kind::value || answer.kind == MetaAnswer::Kind::done;
    FUZZ_CHECK(!is_sure || (answer.has_token && answer.token == questions_.front().token),
               "of another question");
    FUZZ_CHECK(answer.kind != MetaAnswer::Kind::value || room_.size() == answer.size + 2);
    if (answer.kind == MetaAnswer::Kind::figure) return tag % 2 == 0;
    questions_.pop_front();
    return answer.kind != MetaAnswer::Kind::error;
  }

  fuzz::Input input_;
  ClusterConnection connection_;
  int server_ = -1;
  std::deque<Question> questions_;
  std::vector<std::byte> room_;
};

}  // namespace
}  // namespace cube::cache

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  cube::fuzz::Input input(data, size);
  const bool has_login = input.byte() % 8 == 0;
  cube::cache::Talk(input, has_login ? "anna secret" : "").run();
  return 0;
}
