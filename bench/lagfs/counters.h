// Counts the requests that reached the origin: one set of counters for each operation, with a text
// and a JSON form.
//
// Thread safety: all members may be called from any thread. A count is exact when add() has
// returned. Before a snapshot that must include all earlier requests, wait for the workers
// (workers.h, settle()).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "ops.h"

namespace cube::lagfs {

class Counters {
 public:
  // `data_file`: the operation concerns a regular file (or a name that leads to one).
  void add(Op op, bool data_file);
  void add_error(Op op);
  void add_bytes(Op op, std::uint64_t bytes);
  void add_forget(std::uint64_t count);
  void reset();

  // One line `op count` for each operation, then total, data_files, other and forget (not in the
  // total).
  std::string text() const;
  // {"lookup": {"count", "errors", "data_files", "other"}, "read": {... "bytes"}, ..., "total":
  // {...}, "forget": N}
  std::string json() const;

 private:
  struct Row {
    std::atomic<std::uint64_t> data_files{0};
    std::atomic<std::uint64_t> other{0};
    std::atomic<std::uint64_t> errors{0};
    std::atomic<std::uint64_t> bytes{0};
  };

  std::array<Row, k_op_count> rows_;
  std::atomic<std::uint64_t> forget_{0};
};

}  // namespace cube::lagfs
