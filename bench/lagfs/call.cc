#include "call.h"

#include <algorithm>
#include <cerrno>

namespace cube::lagfs {

Call::Call(fuse_req_t request, Op op, bool data_file)
    : origin_(origin_of(request)), request_(request), op_(op), start_(now_ns()) {
  origin_.counters.add(op, data_file);
}

bool Call::refused() {
  const double seconds = origin_.faults.hang_for(op_);
  int error = 0;
  if (seconds > 0 && !hang(seconds)) error = EINTR;
  if (error == 0) error = origin_.faults.error_for(op_);
  if (error == 0) {
    error = origin_.script.meet(op_, [this] {
      Workers::mark_counted();
      return fuse_req_interrupted(request_) != 0;
    });
  }
  if (error == 0) return false;
  finish(error);
  return true;
}

bool Call::hang(double seconds) {
  // Sleeps in short naps, so that a client that is killed during the hang can end, as on a hung
  // network mount.
  constexpr Nanoseconds k_nap = 10'000'000;
  Workers::mark_counted();
  const Nanoseconds end = now_ns() + static_cast<Nanoseconds>(seconds * 1e9);
  while (now_ns() < end) {
    sleep_until(std::min(end, now_ns() + k_nap));
    if (fuse_req_interrupted(request_) != 0) return false;
  }
  start_ = now_ns();
  return true;
}

void Call::finish(int error) {
  if (error != 0) note_error();
  wait();
  fuse_reply_err(request_, error);
}

void Call::wait(std::uint64_t bytes) {
  if (bytes > 0) origin_.counters.add_bytes(op_, bytes);
  Workers::mark_counted();
  sleep_until(origin_.latency.reply_time(op_, start_, bytes));
}

void Call::note_error() { origin_.counters.add_error(op_); }

}  // namespace cube::lagfs
