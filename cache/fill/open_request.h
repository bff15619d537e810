// The request and the result of FileCache::open for a file below a prefix. Thread safety: plain
// values.
#pragma once

#include <fcntl.h>

#include <optional>
#include <string_view>

#include "cache/region/ram/ram_tier.h"

namespace cube::cache {

class LargeFile;
class PartialFill;

struct OpenRequest {
  std::string_view key;        // absolute, normalized path of the file
  const char* path = nullptr;  // `key` with a terminating zero, for calls to the origin
  int flags = O_RDONLY;        // the flags of the program's call
  // Called before the origin is opened, because the program may get the fd that this open returns.
  void (*before_kernel_open)() = [] {};
  // Takes over a file that is fetched in parts while the program reads it (partial_fill.h). `fd`:
  // the fd that the program will get. Called with signals blocked. Returns false if it does not
  // take over the file. Null: all files are fetched as a whole.
  bool (*serve_fill)(void* who, PartialFill& fill, int fd) = nullptr;
  void* who = nullptr;
};

// Exactly one of pin, kernel_fd, object and error is set.
struct OpenOutcome {
  Pin pin;
  // The lowest fd that this open has opened and closed again (for the origin, the disk or the
  // region). -1: it has closed none.
  int freed_fd = -1;
  bool was_fetched = false;  // this open fetched the pinned record from the origin
  // The origin took long to answer a stat that revalidated an existing record.
  bool has_waited_for_stat = false;
  int kernel_fd = -1;
  bool is_directory = false;  // kernel_fd is a directory
  bool is_filling = false;    // serve_fill has taken kernel_fd
  // Set if kernel_fd is a file on a mount that may be served in blocks (large_files.h). If it is
  // not served in blocks, the open counts as bypassed for this reason.
  std::optional<base::Counter> unless_large;
  // An object that is served in blocks. The caller must call end() on it.
  LargeFile* object = nullptr;
  int error = 0;
  bool is_known_absent = false;  // `error` comes from a negative entry; the origin was not asked
};

}  // namespace cube::cache
