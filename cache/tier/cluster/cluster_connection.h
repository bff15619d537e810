// One socket to a server. Commands are sent in order, answers arrive in the same order, and no call
// blocks. Invariants: after any fault, the connection is closed, because it is unclear to which
// commands further answers would belong. Faults are errors, wrong tokens, unknown lines, and
// unexpected bytes. Each command has a different token, and a server cannot predict the first
// token. Thread safety: one thread, with its own fd table.
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
    // Returns room for a value of `bytes` bytes and for two more bytes. Null: the value is too
    // large.
    virtual std::byte* room_for(Tag tag, std::uint64_t bytes) = 0;
    // Called for each answer. Returns false if the connection must be closed. Each `figure` of an
    // answer is reported before the answer's end.
    virtual bool answered(Tag tag, const MetaAnswer& answer) = 0;

   protected:
    ~Listener() = default;
  };
  using Bytes = std::span<const std::byte>;
  static constexpr std::size_t k_most_parts = 4;

  bool open(const ServerAddress& address, std::string_view login, std::uint64_t now_ns);
  // Takes over a socket whose connect is in progress or complete.
  void adopt(base::UniqueFd socket, std::string_view login, std::uint64_t now_ns);
  void close();
  bool is_open() const { return static_cast<bool>(socket_); }
  // Whether commands may be sent: the connection is established and logged in.
  bool is_ready() const { return is_ready_; }
  bool is_busy() const { return pending_ != 0 || (is_open() && !is_ready_); }
  bool has_room() const {
    return pending_ < k_most_pending && out_end_ + sizeof(MetaCommand) <= sizeof out_;
  }
  // Whether an idle connection is still usable. Closes the connection if the server has closed it
  // or has sent unexpected bytes. These bytes then become the complaint.
  bool is_alive();

  // The token for the next command.
  std::uint64_t next_token(Tag tag) const { return sent_ << 32 | tag; }
  // Sends a command, which must contain the token of next_token(). Call it only while has_room() is
  // true. The parts must not change until the answer has arrived. Only one command with parts may
  // be in flight.
  void send(Tag tag, const MetaCommand& command, std::span<const Bytes> parts = {});
  pollfd to_poll() const;
  // Sends as many bytes as can be sent now. False: the connection is closed.
  bool push_out() { return !is_connected_ || write_out(); }
  // Sends and receives according to `polled`. False: the connection is closed.
  bool pump(const pollfd& polled, Listener& listener, std::uint64_t now_ns);
  // The time at which the server's last bytes arrived, or at which the connection was opened.
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
  // Makes the kernel report the socket as readable only when this many bytes have arrived, or when
  // the socket was closed.
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
  bool waits_for_many_ = false;  // set by wait_for()
  char complaint_[128];
  std::size_t complaint_bytes_ = 0;
};

}  // namespace cube::cache
