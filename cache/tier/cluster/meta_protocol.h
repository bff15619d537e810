// The text of memcached's meta protocol: commands from values, and values from lines of answers. No
// I/O. Invariants: a command is one line with its end; an answer that is not understood is
// `unknown`, never something else. Thread safety: pure functions and plain values;
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
    refused,    // NS, EX: somebody else has been quicker
    full,       // SERVER_ERROR out of memory
    too_large,  // SERVER_ERROR object too large for cache
    error,      // any other error; the connection may be of no use any more
    stored,     // STORED: the login is right
    figure,     // STAT name value
    end,        // END
    unknown
  };
  Kind kind = Kind::unknown;
  bool is_won = false;    // W: the lease is the asker's
  bool is_taken = false;  // Z: another has it
  bool has_cas = false, has_token = false, has_size = false;
  std::uint64_t size = 0;  // bytes of the value
  std::uint64_t cas = 0;   // the version of the item
  std::uint64_t token = 0;
  std::string_view name, text;  // of a figure; they point into the line
};

// A line without its end.
MetaAnswer parse_meta_answer(std::string_view line);
// Bytes of the first line, its end included; 0: there is no end yet. An end is "\r\n".
std::size_t meta_line_bytes(std::string_view bytes);

// A command's line. The token comes back in the answer.
class MetaCommand {
 public:
  // A key has at most so many bytes, and is fit for a key: no blank, no control character.
  static constexpr std::size_t k_longest_key = 250;

  // `lease_seconds`: 0: no lease is asked for.
  static MetaCommand get(std::string_view key, std::uint64_t token, unsigned lease_seconds);
  // Its version and size, without its bytes.
  static MetaCommand look(std::string_view key, std::uint64_t token);
  // The same with a lease: who gets it sees a size of zero, and has to bring the bytes.
  static MetaCommand lease(std::string_view key, std::uint64_t token, unsigned seconds);
  // The bytes and "\r\n" are to follow. add: only where there is none. replace: only this version.
  static MetaCommand add(std::string_view key, std::uint64_t token, std::uint64_t size);
  static MetaCommand replace(std::string_view key, std::uint64_t token, std::uint64_t size,
                             std::uint64_t cas);
  static MetaCommand remove(std::string_view key, std::uint64_t token, std::uint64_t cas);
  static MetaCommand figures();
  // The same for a login: the bytes and "\r\n" are to follow.
  static MetaCommand login(std::uint64_t size);

  std::string_view text() const { return {text_, size_}; }

 private:
  MetaCommand& put(std::string_view text);
  MetaCommand& put(std::uint64_t number, unsigned base = 10);
  char text_[k_longest_key + 134];
  std::size_t size_ = 0;
};

}  // namespace cube::cache
