// The state of one mount, which all operations share.
//
// Thread safety: each part has its own rules; `options` does not change once the workers run.
#pragma once

#include <fuse_lowlevel.h>

#include <functional>

#include "counters.h"
#include "faults.h"
#include "latency.h"
#include "node_table.h"
#include "options.h"
#include "script.h"
#include "workers.h"

namespace cube::lagfs {

struct Origin {
  // Takes over `root_fd`, an O_PATH fd of the source.
  Origin(const Options& from, int root_fd)
      : options(from),
        faults(from.fails, from.hangs, from.short_read, from.seed),
        latency(from.latency_us, from.bandwidth_mb * 1e6),
        nodes(root_fd) {}

  Options options;
  Counters counters;
  Faults faults;
  Script script;
  Latency latency;
  NodeTable nodes;
  Workers workers;
  std::function<void()> on_ready;  // called once, when the kernel has accepted the mount
};

inline Origin& origin_of(fuse_req_t request) {
  return *static_cast<Origin*>(fuse_req_userdata(request));
}

}  // namespace cube::lagfs
