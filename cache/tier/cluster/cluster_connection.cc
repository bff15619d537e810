#include "cache/tier/cluster/cluster_connection.h"
#include "cache/base/memory/copy_bytes.h"

#include <netinet/tcp.h>

#include <algorithm>
#include <cstring>

namespace cube::cache {

namespace sys = base::sys;

bool ClusterConnection::open(const ServerAddress& address, std::string_view login,
                             std::uint64_t now_ns) {
  close();
  const long made = sys::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (sys::failed(made)) return false;
  base::UniqueFd socket(static_cast<int>(made));
  const int on = 1;
  sys::raw(SYS_setsockopt, socket.get(), IPPROTO_TCP, TCP_NODELAY, sys::arg(&on), sizeof on);
  const long error = sys::connect(socket.get(), &address.any, address.bytes);
  if (sys::failed(error) && error != -EINPROGRESS && error != -EAGAIN) return false;
  adopt(std::move(socket), login, now_ns);
  return true;
}

void ClusterConnection::adopt(base::UniqueFd socket, std::string_view login, std::uint64_t now_ns) {
  close();
  socket_ = std::move(socket);
  heard_ns_ = opened_ns_ = now_ns;
  sent_ = (sent_ + now_ns) & UINT32_MAX;
  login_ = login;
}

void ClusterConnection::close() {
  socket_.reset();
  is_connected_ = is_ready_ = false;
  first_ = pending_ = 0;
  out_begin_ = out_end_ = in_begin_ = in_end_ = 0;
  part_ = part_count_ = 0;
  value_to_ = nullptr;
  value_left_ = complaint_bytes_ = 0;
  waits_for_many_ = false;
}

bool ClusterConnection::is_alive() {
  if (!is_ready_ || pending_ != 0) return is_open();
  // No answer is due. So if there are bytes, the end of the stream, or an error, the connection is
  // unusable.
  const long n = sys::recv(socket_.get(), complaint_, sizeof complaint_, MSG_PEEK | MSG_DONTWAIT);
  if (n == -EAGAIN) return true;
  close();
  complaint_bytes_ = n > 0 ? static_cast<std::size_t>(n) : 0;
  return false;
}

bool ClusterConnection::connected() {
  int error = 0;
  unsigned size = sizeof error;
  if (sys::failed(sys::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &size)) ||
      error != 0)
    return false;
  is_connected_ = true;
  if (login_.empty()) {
    is_ready_ = true;
    return true;
  }
  // The login must be the first command, and uses the old text protocol.
  send(k_login, MetaCommand::login(login_.size()));
  std::memcpy(out_ + out_end_, login_.data(), login_.size());
  std::memcpy(out_ + out_end_ + login_.size(), "\r\n", 2);
  out_end_ += login_.size() + 2;
  return true;
}

void ClusterConnection::send(Tag tag, const MetaCommand& command, std::span<const Bytes> parts) {
  const std::string_view text = command.text();
  std::memcpy(out_ + out_end_, text.data(), text.size());
  out_end_ += text.size();
  tokens_[(first_ + pending_++) % k_most_pending] = next_token(tag);
  sent_ = (sent_ + 1) & UINT32_MAX;
  if (parts.empty()) return;
  part_ = 0;
  part_count_ = std::min(parts.size(), k_most_parts);
  std::copy_n(parts.begin(), part_count_, parts_);
}

pollfd ClusterConnection::to_poll() const {
  const bool wants_out = !is_connected_ || has_output();
  return {.fd = socket_.get(),
          .events = static_cast<short>(POLLIN | (wants_out ? POLLOUT : 0)),
          .revents = 0};
}

void ClusterConnection::wait_for(std::uint64_t bytes) {
  waits_for_many_ = bytes > 1;
  const auto least = static_cast<int>(bytes);
  sys::raw(SYS_setsockopt, socket_.get(), SOL_SOCKET, SO_RCVLOWAT, sys::arg(&least), sizeof least);
}

bool ClusterConnection::write_out() {
  const auto put = [&](const void* from, std::size_t n) {
    const long sent = sys::send(socket_.get(), from, n, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent == -EAGAIN || sent == -EINTR) return 0L;
    return sent <= 0 ? -1L : sent;
  };
  while (out_begin_ != out_end_) {
    const long n = put(out_ + out_begin_, out_end_ - out_begin_);
    if (n <= 0) return n == 0;
    out_begin_ += static_cast<std::size_t>(n);
  }
  out_begin_ = out_end_ = 0;
  while (part_ != part_count_) {
    Bytes& part = parts_[part_];
    if (!part.empty()) {
      const long n = put(part.data(), part.size());
      if (n <= 0) return n == 0;
      part = part.subspan(static_cast<std::size_t>(n));
    }
    if (part.empty()) ++part_;
  }
  return true;
}

bool ClusterConnection::end_answer(Listener& listener, const MetaAnswer& answer) {
  using Kind = MetaAnswer::Kind;
  const std::uint64_t token = tokens_[first_];
  const auto tag = static_cast<Tag>(token);
  if (answer.kind != Kind::figure) {
    first_ = (first_ + 1) % k_most_pending;
    --pending_;
  }
  if (tag == k_login) {
    is_ready_ = answer.kind == Kind::stored;
    return is_ready_;
  }
  // Errors, figures and "EN" have no token.
  const bool needs_token =
      answer.kind == Kind::value || answer.kind == Kind::done || answer.kind == Kind::refused;
  if (answer.has_token ? answer.token != token : needs_token) return false;
  // A server may refuse a value before it has received all its bytes. The server would take the
  // remaining bytes for a command, so the connection is closed.
  const bool is_early = part_ != part_count_;
  const bool is_refusal =
      answer.kind == Kind::full || answer.kind == Kind::too_large || answer.kind == Kind::error;
  if (is_early && !is_refusal) return false;
  return listener.answered(tag, answer) && !is_early;
}

bool ClusterConnection::take_line(Listener& listener, std::string_view line) {
  const MetaAnswer answer = parse_meta_answer(line);
  using Kind = MetaAnswer::Kind;
  complaint_bytes_ = 0;
  if (answer.kind == Kind::error || answer.kind == Kind::unknown) {
    complaint_bytes_ = std::min(line.size(), sizeof complaint_);
    std::copy_n(line.data(), complaint_bytes_, complaint_);
  }
  // A line that answers no command, such as an error, ends the connection, too.
  if (pending_ == 0 || answer.kind == Kind::unknown) return false;
  if (answer.kind != Kind::value) return end_answer(listener, answer);
  if (!answer.has_token || answer.token != tokens_[first_]) return false;
  value_ = answer;
  value_to_ = listener.room_for(static_cast<Tag>(answer.token), answer.size);
  value_left_ = answer.size + 2;
  return value_to_ != nullptr;
}

// Handles bytes of a value that were read into `in_`.
bool ClusterConnection::take_value(Listener& listener) {
  const std::size_t n = std::min<std::uint64_t>(value_left_, in_end_ - in_begin_);
  base::copy_bytes(value_to_, in_ + in_begin_, n);
  in_begin_ += n;
  value_to_ += n;
  value_left_ -= n;
  if (value_left_ != 0) return true;
  const bool is_ended = std::memcmp(value_to_ - 2, "\r\n", 2) == 0;
  value_to_ = nullptr;
  return is_ended && end_answer(listener, value_);
}

bool ClusterConnection::read_in(Listener& listener, std::uint64_t now_ns) {
  // Limits the number of reads, so that a server that never stops sending cannot keep the thread
  // here.
  constexpr int k_most_reads = 64;
  constexpr std::uint64_t k_most_at_once = 256 << 10;
  for (int i = 0; i < k_most_reads; ++i) {
    const bool is_straight = value_to_ != nullptr && in_begin_ == in_end_ && value_left_ > 2;
    // The bytes of a value are read directly to their room, but the line end after them is read
    // into `in_`.
    char* const to = is_straight ? reinterpret_cast<char*>(value_to_) : in_ + in_end_;
    const std::size_t room = is_straight ? value_left_ - 2 : sizeof in_ - in_end_;
    const long n = sys::recv(socket_.get(), to, room, MSG_DONTWAIT);
    if (n == -EAGAIN || n == -EINTR) {
      // Asks for one wake-up for the rest of the value, instead of one for each packet.
      if (value_to_ != nullptr) wait_for(std::min(value_left_, k_most_at_once));
      return true;
    }
    if (n <= 0) return false;
    if (waits_for_many_) wait_for(1);
    heard_ns_ = now_ns;
    if (is_straight) {
      value_to_ += n;
      value_left_ -= static_cast<std::uint64_t>(n);
      continue;
    }
    in_end_ += static_cast<std::size_t>(n);
    while (in_begin_ != in_end_) {
      if (value_to_ != nullptr) {
        if (!take_value(listener)) return false;
        continue;
      }
      const std::size_t bytes = meta_line_bytes({in_ + in_begin_, in_end_ - in_begin_});
      if (bytes == 0) break;
      const std::string_view line(in_ + in_begin_, bytes - 2);
      in_begin_ += bytes;
      if (!take_line(listener, line)) return false;
    }
    std::copy(in_ + in_begin_, in_ + in_end_, in_);
    in_end_ -= in_begin_;
    in_begin_ = 0;
    // No valid line is as long as the buffer. If no command awaits an answer, even the start of a
    // line is an error.
    if (in_end_ == sizeof in_ || (is_ready_ && pending_ == 0 && in_end_ != 0)) return false;
  }
  return true;
}

bool ClusterConnection::pump(const pollfd& polled, Listener& listener, std::uint64_t now_ns) {
  if (!is_open()) return false;
  bool is_right = true;
  if (!is_connected_ && (polled.revents & (POLLOUT | POLLERR | POLLHUP)) != 0)
    is_right = connected();
  if (is_right && is_connected_) is_right = write_out();
  if (is_right && is_connected_ && (polled.revents & (POLLIN | POLLERR | POLLHUP)) != 0)
    is_right = read_in(listener, now_ns);
  if (is_right && is_connected_) is_right = write_out();
  return is_right;
}

}  // namespace cube::cache
