#include "prefetch/order/list_entries.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "cache/base/error_text.h"
#include "cache/base/process/high_fd.h"

namespace cube::prefetch {

namespace sys = base::sys;

base::Result<ListEntries> ListEntries::open(const char* path, std::string& why) {
  // O_NONBLOCK: without it, the open of a FIFO would wait for a writer before the FIFO can be
  // refused.
  auto fd = base::open_fd(path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
  if (!fd) {
    why = base::text_of_error(fd.error().value);
    return base::fail(fd.error().value);
  }
  ListEntries reader;
  reader.fd_ = base::raise_fd(std::move(*fd));
  // Asks the server, so that the size includes bytes that another node has just written.
  const auto stat = cache::stat_fd(reader.fd_.get(), cache::k_ask_server);
  if (!stat || !stat->is_regular()) {
    why = stat ? "it is not a regular file" : base::text_of_error(stat.error().value);
    return base::fail(stat ? EINVAL : stat.error().value);
  }
  reader.stat_ = *stat;
  reader.buffer_.reset(new (std::nothrow) char[k_block + k_longest]);
  if (reader.buffer_ == nullptr) {
    why = "no memory";
    return base::fail(ENOMEM);
  }
  if (!reader.refill() && reader.error_ != 0) {
    why = base::text_of_error(reader.error_);
    return base::fail(reader.error_);
  }
  const std::string_view first(reader.buffer_.get(), reader.end_);
  if (first.find('\0') != std::string_view::npos) reader.separator_ = '\0';
  if (first.starts_with("\xEF\xBB\xBF")) reader.begin_ = 3;
  return reader;
}

// Returns false if the host has closed this fd, or has opened another file with the same number.
bool ListEntries::is_our_file() const {
  const auto now = cache::stat_fd(fd_.get(), AT_STATX_DONT_SYNC);
  return now && now->same_file(stat_);
}

// Moves the remaining bytes to the front and reads more. Returns false at the end of the list, or
// on an error.
bool ListEntries::refill() {
  std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
  const std::uint64_t left = stat_.size - std::min(stat_.size, offset_);
  const std::size_t room = std::min<std::uint64_t>(left, k_block + k_longest - end_);
  if (room == 0) return false;
  long n = -EINTR;
  while (n == -EINTR)
    n = sys::pread(fd_.get(), buffer_.get() + end_, room, static_cast<std::int64_t>(offset_));
  if (sys::failed(n)) {
    error_ = static_cast<int>(-n);
    return false;
  }
  if (!is_our_file()) {
    error_ = EBADF;
    return false;
  }
  end_ += static_cast<std::size_t>(n);
  offset_ += static_cast<std::uint64_t>(n);
  return n != 0;
}

ListEntries::Got ListEntries::finish(std::string_view& entry, std::size_t length, bool ends) {
  entry = {buffer_.get() + begin_, length};
  begin_ += length + (ends ? 1 : 0);
  if (ends && separator_ == '\n' && entry.ends_with('\r')) entry.remove_suffix(1);
  ++line_;
  return entry.size() > k_longest ? Got::too_long : Got::entry;
}

ListEntries::Got ListEntries::next(std::string_view& entry) {
  while (true) {
    const char* const from = buffer_.get() + begin_;
    const void* const found = std::memchr(from, separator_, end_ - begin_);
    if (found != nullptr) {
      const auto length = static_cast<std::size_t>(static_cast<const char*>(found) - from);
      if (!is_skipping_) return finish(entry, length, true);
      is_skipping_ = false;
      begin_ += length + 1;
      continue;
    }
    if (is_skipping_) begin_ = end_;
    if (end_ - begin_ > k_longest) {
      is_skipping_ = true;
      return finish(entry, end_ - begin_, false);
    }
    if (error_ == 0 && refill()) continue;
    if (error_ != 0) return Got::error;
    if (begin_ == end_) return Got::end;
    return finish(entry, end_ - begin_, false);
  }
}

bool ListEntries::has_changed() const {
  const auto now = cache::stat_fd(fd_.get(), cache::k_ask_server);
  return !now || !now->same_content(stat_);
}

}  // namespace cube::prefetch
