// The text of memcached's meta protocol: builds the lines of commands, and parses the lines of
// answers. Does no I/O. Invariants: a command is one line, including its line end. An answer that
// is not understood is always `unknown`. Thread safety: pure functions and plain values;
// async-signal-safe; nothing is allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cube::cache {

struct MetaAnswer {
  enum class Kind : std::uint8_t {
    value,      // VA: `size` bytes and a line end follow
    done,       // HD
    none,       // EN, NF
    refused,    // NS, EX: another client was faster
    full,       // SERVER_ERROR out of memory
    too_large,  // SERVER_ERROR object too large for cache
    error,      // any other error; the connection may be unusable
    stored,     // STORED: the login is right
    figure,     // STAT name value
    end,        // END
    unknown
  };
  Kind kind = Kind::unknown;
  bool is_won = false;    // W: this client has got the lease
  bool is_taken = false;  // Z: another client has the lease
  bool has_cas = false, has_token = false, has_size = false;
  std::uint64_t size = 0;  // bytes of the value
  std::uint64_t cas = 0;   // the version of the item
  std::uint64_t token = 0;
  std::string_view name, text;  // a figure's name and text, which point into the line
};

// Parses a line, given without its line end.
MetaAnswer parse_meta_answer(std::string_view line);
// Returns the size of the first line in bytes, including its "\r\n". 0: the line is not complete
// yet.
std::size_t meta_line_bytes(std::string_view bytes);

// The line of a command. The answer contains the token of the command.
class MetaCommand {
 public:
  // The longest key in bytes. A key contains no blanks or control characters.
  static constexpr std::size_t k_longest_key = 250;

  // Asks for a value. If `lease_seconds` is not 0, asks for a lease, too.
  static MetaCommand get(std::string_view key, std::uint64_t token, unsigned lease_seconds);
  // Asks for the version and size of an item, without its bytes.
  static MetaCommand look(std::string_view key, std::uint64_t token);
  // Like look, but asks for a lease, too. The client that gets the lease sees a size of 0, and must
  // store the bytes.
  static MetaCommand lease(std::string_view key, std::uint64_t token, unsigned seconds);
  // The bytes and "\r\n" must follow the command. `add` stores them only if there is no item.
  // `replace` stores them only if the item has this version.
  static MetaCommand add(std::string_view key, std::uint64_t token, std::uint64_t size);
  static MetaCommand replace(std::string_view key, std::uint64_t token, std::uint64_t size,
                             std::uint64_t cas);
  static MetaCommand remove(std::string_view key, std::uint64_t token, std::uint64_t cas);
  static MetaCommand figures();
  // Logs in. The bytes and "\r\n" must follow the command.
  static MetaCommand login(std::uint64_t size);

  std::string_view text() const { return {text_, size_}; }

 private:
  MetaCommand& put(std::string_view text);
  MetaCommand& put(std::uint64_t number, unsigned base = 10);
  char text_[k_longest_key + 134];
  std::size_t size_ = 0;
};

}  // namespace cube::cache
