// Another process that changes files on request. It answers only when the change is complete, so
// that no sequence depends on timing. Each player has two actors: the peer, which runs under the
// same library settings as the player, and the outsider, which runs without the library.
#pragma once

#include <cstdint>
#include <string>

namespace cube::differ {

// The harness's own fds. The fds of sequences are below these, and the library's own fds are above.
inline constexpr int k_first_own_fd = 500;
inline constexpr int k_fd_limit = 1024;  // RLIMIT_NOFILE of the players
inline constexpr int k_command_fd = 500, k_answer_fd = 501, k_log_fd = 502, k_peer_fd = 503,
                     k_outsider_fd = 504, k_pipe_fd = 510;

enum class Change : std::int32_t {
  write,  // n bytes of pattern at an offset
  append,
  truncate,  // to the offset
  rewrite,   // O_TRUNC, then n bytes, like an editor
  touch,
  chmod,
  read,     // changes nothing: reads the file, and so caches it
  replace,  // renames another file over the file
  unlink,
  create,
  hold,     // opens the file for writing and keeps it open
  release,  // closes all held files
};

struct Order {
  Change kind = Change::read;
  // The number of the pattern to write. If not 0, it is also added to the modification time.
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

  // Runs in the actor's process: serves requests until the socket is closed.
  static void serve(int socket);

 private:
  int socket_;
};

}  // namespace cube::differ
