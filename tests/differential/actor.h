// Another process that changes files on request and answers only when it has done so, so that no
// sequence depends on timing. Each player has two of them: the peer, with the library loaded as the
// player has it, and the outsider without it.
#pragma once

#include <cstdint>
#include <string>

namespace cube::differ {

// Fds that the harness uses itself; sequences stay below, the library's own fds above.
inline constexpr int k_first_own_fd = 500;
inline constexpr int k_fd_limit = 1024;  // RLIMIT_NOFILE of the players
inline constexpr int k_command_fd = 500, k_answer_fd = 501, k_log_fd = 502, k_peer_fd = 503,
                     k_outsider_fd = 504, k_pipe_fd = 510;

enum class Change : std::int32_t {
  write,  // n bytes of pattern at an offset
  append,
  truncate,  // to the offset
  rewrite,   // like an editor: O_TRUNC, then n bytes
  touch,
  chmod,
  read,     // no change: reads the file, and so caches it
  replace,  // renames another file over it
  unlink,
  create,
  hold,     // opens it for writing and keeps it open
  release,  // closes all that it holds
};

struct Order {
  Change kind = Change::read;
  // which pattern to write; if not 0, also added to the modification time
  std::int32_t number = 0;
  std::int64_t offset = 0, size = 0;
  char path[400] = {};
};
struct Answer {
  std::int64_t value = 0;
  std::int32_t error = 0;
};

class Actor {
 public:
  explicit Actor(int socket) : socket_(socket) {}
  Answer ask(Order order, const std::string& path = {});
  bool is_there() const { return socket_ >= 0; }

  // The other side: serves requests until the socket is closed.
  static void serve(int socket);

 private:
  int socket_;
};

}  // namespace cube::differ
