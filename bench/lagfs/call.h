// One request on its way through the origin. The request is counted on arrival, and might be
// refused. The work is also done on arrival; only the reply is delayed.
//
// A handler creates a Call, returns if refused() is true, does its work, and ends with finish(), or
// with wait() and its own reply.
//
// Thread safety: one thread, the worker that serves the request.
#pragma once

#include <fuse_lowlevel.h>

#include <cstdint>

#include "origin.h"

namespace cube::lagfs {

class Call {
 public:
  // Counts the request. `data_file` is true if the request concerns a regular file.
  Call(fuse_req_t request, Op op, bool data_file);

  // Hangs if a rule requires it. Returns true if the reply has already been sent, because an error
  // was injected or the client interrupted the hang.
  bool refused();

  // Answers with an errno, or 0 for success, after the latency has passed.
  void finish(int error);
  // Counts the bytes and waits until the reply may be sent; the handler then replies itself.
  void wait(std::uint64_t bytes = 0);
  // Counts an error that is answered by a successful reply (a negative entry).
  void note_error();

 private:
  bool hang(double seconds);  // false if the client was interrupted

  Origin& origin_;
  fuse_req_t request_;
  Op op_;
  Nanoseconds start_;
};

}  // namespace cube::lagfs
