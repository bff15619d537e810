// One socket to a server: commands go out in order, answers come back in that order, and nothing
// ever blocks. Invariants: after any fault (an error, a wrong token, a line that is not understood,
// an unexpected byte) the connection is closed and never used again, because the rest of the stream
// cannot be attributed. No two commands have the same token, and no server can predict the first.
// Thread safety: one thread, with an fd table of its own.
#pragma once

#include <poll.h>

#include <span>
#include <string>

#include "cache/base/unique_fd.h"
#include "cache/tier/cluster/meta_protocol.h"
#include "cache/tier/cluster/server_address.h"

namespace cube::cache {

class ClusterConnection {
 public:
  using Tag = std::uint32_t;
  class Listener {
   public:
    // Returns room for the bytes of a value and two more, or null if the value is too large.
    virtual std::byte* room_for(Tag tag, std::uint64_t bytes) = 0;
    // Returns false if the connection must be closed. A `figure` precedes the answer that it
    // belongs to.
    virtual bool answered(Tag tag, const MetaAnswer& answer) = 0;

   protected:
    ~Listener() = default;
  };
  using Bytes = std::span<const std::byte>;
  static constexpr std::size_t k_most_parts = 4;

  bool open(const ServerAddress& address, std::string_view login, std::uint64_t now_ns);
  // Takes over a socket whose connect is under way or done.
  void adopt(base::UniqueFd socket, std::string_view login, std::uint64_t now_ns);
  void close();
  bool is_open() const { return static_cast<bool>(socket_); }
  // True once commands may be sent, that is, when connected and logged in.
  bool is_ready() const { return is_ready_; }
  bool is_busy() const { return pending_ != 0 || (is_open() && !is_ready_); }
  bool has_room() const {
    return pending_ < k_most_pending && out_end_ + sizeof(MetaCommand) <= sizeof out_;
  }
  // Closes an idle connection that the server has closed, or one with unexpected bytes, which
  // become the complaint.
  bool is_alive();

  // The token of the command that is sent next.
  std::uint64_t next_token(Tag tag) const { return sent_ << 32 | tag; }
  // Sends a command with the token of next_token(). Call it only while has_room() is true. The
  // parts must not change until the answer has arrived. Only one command with parts may be in
  // flight.
  void send(Tag tag, const MetaCommand& command, std::span<const Bytes> parts = {});
  pollfd to_poll() const;
  // Sends what can be sent now. Returns false if the connection is closed.
  bool push_out() { return !is_connected_ || write_out(); }
  // Returns false if the connection is closed.
  bool pump(const pollfd& polled, Listener& listener, std::uint64_t now_ns);
  // The time at which the connection was opened, or at which the server's last bytes arrived.
  std::uint64_t heard_ns() const { return heard_ns_; }
  std::uint64_t opened_ns() const { return opened_ns_; }
  std::size_t pending() const { return pending_; }
  // The text of the last answer if it was an error.
  std::string_view complaint() const { return {complaint_, complaint_bytes_}; }

 private:
  static constexpr std::size_t k_most_pending = 64;
  static constexpr Tag k_login = ~Tag{0};

  bool connected();
  bool write_out();
  bool read_in(Listener& listener, std::uint64_t now_ns);
  bool take_value(Listener& listener);
  bool take_line(Listener& listener, std::string_view line);
  bool has_output() const { return out_begin_ != out_end_ || part_ != part_count_; }
  bool end_answer(Listener& listener, const MetaAnswer& answer);
  // Makes the socket readable only when it has this many bytes, or has been closed.
  void wait_for(std::uint64_t bytes);

  base::UniqueFd socket_;
  bool is_connected_ = false, is_ready_ = false;
  std::uint64_t heard_ns_ = 0, opened_ns_ = 0;
  std::string login_;
  std::uint64_t sent_ = 0;
  std::uint64_t tokens_[k_most_pending];
  std::size_t first_ = 0, pending_ = 0;
  char out_[24 << 10];
  std::size_t out_begin_ = 0, out_end_ = 0;
  Bytes parts_[k_most_parts];
  std::size_t part_ = 0, part_count_ = 0;
  char in_[16 << 10];
  std::size_t in_begin_ = 0, in_end_ = 0;
  MetaAnswer value_;  // the value whose bytes are being received
  std::byte* value_to_ = nullptr;
  std::uint64_t value_left_ = 0;
  bool waits_for_many_ = false;  // wait_for
  char complaint_[128];
  std::size_t complaint_bytes_ = 0;
};

}  // namespace cube::cache
