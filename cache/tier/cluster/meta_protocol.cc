#include "cache/tier/cluster/meta_protocol.h"

#include <cstring>

#include "cache/base/words.h"

namespace cube::cache {
namespace {

using Kind = MetaAnswer::Kind;

bool number_of_word(std::string_view word, std::uint64_t& value, int radix = 10) {
  const auto number = base::number_of(word, radix);
  value = number.value_or(value);
  return number.has_value();
}

// Parses the flags after the first word. Returns false if a flag is malformed.
bool take_flags(std::string_view line, MetaAnswer& answer) {
  while (!line.empty()) {
    const std::string_view word = base::take_word(line);
    if (word.empty()) continue;
    const std::string_view rest = word.substr(1);
    switch (word.front()) {
      case 'W': answer.is_won = true; break;
      case 'Z': answer.is_taken = true; break;
      case 'c':
        if (!number_of_word(rest, answer.cas)) return false;
        answer.has_cas = true;
        break;
      case 's':
        if (!number_of_word(rest, answer.size)) return false;
        answer.has_size = true;
        break;
      case 'O':
        if (!number_of_word(rest, answer.token, 16)) return false;
        answer.has_token = true;
        break;
      default: break;  // a flag of a later version
    }
  }
  return true;
}

Kind kind_of_server_error(std::string_view text) {
  // memcached has two spellings: one for small items, and one for items in pieces.
  if (text.starts_with("out of memory") || text.starts_with("Out of memory")) return Kind::full;
  return text.starts_with("object too large") ? Kind::too_large : Kind::error;
}

}  // namespace

std::size_t meta_line_bytes(std::string_view bytes) {
  const std::size_t end = bytes.find("\r\n");
  return end == std::string_view::npos ? 0 : end + 2;
}

MetaAnswer parse_meta_answer(std::string_view line) {
  struct Word {
    std::string_view text;
    Kind kind;
  };
  static constexpr Word k_words[] = {{"VA", Kind::value},
                                     {"HD", Kind::done},
                                     {"EN", Kind::none},
                                     {"NF", Kind::none},
                                     {"NS", Kind::refused},
                                     {"EX", Kind::refused},
                                     {"SERVER_ERROR", Kind::error},
                                     {"CLIENT_ERROR", Kind::error},
                                     {"ERROR", Kind::error},
                                     {"STORED", Kind::stored},
                                     {"STAT", Kind::figure},
                                     {"END", Kind::end}};
  MetaAnswer answer;
  const std::string_view first = base::take_word(line);
  for (const Word& word : k_words) {
    if (word.text == first) answer.kind = word.kind;
  }
  bool is_right = true;
  switch (answer.kind) {
    case Kind::value: {
      is_right = number_of_word(base::take_word(line), answer.size) && take_flags(line, answer);
      answer.has_size = true;
      break;
    }
    case Kind::done:
    case Kind::none:
    case Kind::refused: is_right = take_flags(line, answer); break;
    case Kind::error:
      if (first.starts_with('S')) answer.kind = kind_of_server_error(line);
      break;
    case Kind::figure:
      answer.name = base::take_word(line);
      answer.text = line;
      is_right = !answer.name.empty();
      break;
    default: break;
  }
  return is_right ? answer : MetaAnswer{};
}

MetaCommand& MetaCommand::put(std::string_view text) {
  const std::size_t n = std::min(text.size(), sizeof text_ - size_);
  std::memcpy(text_ + size_, text.data(), n);
  size_ += n;
  return *this;
}

MetaCommand& MetaCommand::put(std::uint64_t number, unsigned base) {
  const auto [end, error] =
      std::to_chars(text_ + size_, text_ + sizeof text_, number, static_cast<int>(base));
  if (error == std::errc{}) size_ = static_cast<std::size_t>(end - text_);
  return *this;
}

MetaCommand MetaCommand::get(std::string_view key, std::uint64_t token, unsigned lease_seconds) {
  MetaCommand command;
  command.put("mg ").put(key).put(" v c O").put(token, 16);
  if (lease_seconds != 0) command.put(" N").put(lease_seconds);
  command.put("\r\n");
  return command;
}

MetaCommand MetaCommand::look(std::string_view key, std::uint64_t token) {
  MetaCommand command;
  command.put("mg ").put(key).put(" s c O").put(token, 16).put("\r\n");
  return command;
}

MetaCommand MetaCommand::lease(std::string_view key, std::uint64_t token, unsigned seconds) {
  MetaCommand command;
  command.put("mg ").put(key).put(" s c O").put(token, 16).put(" N").put(seconds).put("\r\n");
  return command;
}

MetaCommand MetaCommand::add(std::string_view key, std::uint64_t token, std::uint64_t size) {
  MetaCommand command;
  command.put("ms ").put(key).put(" ").put(size).put(" ME O").put(token, 16).put("\r\n");
  return command;
}

MetaCommand MetaCommand::replace(std::string_view key, std::uint64_t token, std::uint64_t size,
                                 std::uint64_t cas) {
  MetaCommand command;
  command.put("ms ").put(key).put(" ").put(size).put(" C").put(cas).put(" O").put(token, 16).put(
      "\r\n");
  return command;
}

MetaCommand MetaCommand::remove(std::string_view key, std::uint64_t token, std::uint64_t cas) {
  MetaCommand command;
  command.put("md ").put(key).put(" C").put(cas).put(" O").put(token, 16).put("\r\n");
  return command;
}

MetaCommand MetaCommand::figures() {
  MetaCommand command;
  command.put("stats\r\n");
  return command;
}

MetaCommand MetaCommand::login(std::uint64_t size) {
  MetaCommand command;
  command.put("set cubeshim 0 0 ").put(size).put("\r\n");
  return command;
}

}  // namespace cube::cache
