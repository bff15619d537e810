// One request on its way through the origin: it is counted on arrival, perhaps refused, and
// answered no earlier than its latency allows. The work is done on arrival; only the reply is late.
//
// A handler creates a Call, returns if it is refused(), works, and ends with finish(), or with
// wait() and its own reply.
//
// Thread safety: one thread, the worker that serves the request.
#pragma once

#include <fuse_lowlevel.h>

#include <cstdint>

#include "origin.h"

namespace cube::lagfs {

class Call {
 public:
  // Counts the request. `data_file`: it concerns a regular file.
  Call(fuse_req_t request, Op op, bool data_file);

  // Hangs if a rule says so. Returns true if an error was injected (or the client interrupted the
  // hang) and the reply was sent.
  bool refused();

  // Answers with an errno, or 0 for success, once the latency has passed.
  void finish(int error);
  // Counts the bytes and waits until the reply may be sent; the handler then replies itself.
  void wait(std::uint64_t bytes = 0);
  // Counts an error whose reply is not an error (a negative entry).
  void note_error();

 private:
  bool hang(double seconds);  // false: the client was interrupted

  Origin& origin_;
  fuse_req_t request_;
  Op op_;
  Nanoseconds start_;
};

}  // namespace cube::lagfs
