// An open of a covered file, as the cache is asked for it and as it answers. Thread safety: plain
// values.
#pragma once

#include <fcntl.h>

#include <optional>
#include <string_view>

#include "cache/region/ram/ram_tier.h"

namespace cube::cache {

class PartialFill;

struct OpenRequest {
  std::string_view key;        // absolute, normalised path of the file
  const char* path = nullptr;  // the same with a terminating zero; the origin is asked by it
  int flags = O_RDONLY;        // the program's
  // Called before the origin is opened, for the program may get that very fd.
  void (*before_kernel_open)() = [] {};
  // Takes a file whose bytes come as they are read (partial_fill.h), under the number that the
  // program will know it by. False: it cannot. Called with signals blocked. Null: a file is fetched
  // as a whole.
  bool (*serve_fill)(void* who, PartialFill& fill, int fd) = nullptr;
  void* who = nullptr;
};

// Exactly one of pin, kernel_fd and error is set.
struct OpenOutcome {
  Pin pin;
  // The lowest number that a hit has opened, of the origin, the disk or the region, and is free
  // again. -1: none.
  int freed_fd = -1;
  bool was_fetched = false;  // of pin: by this open, from the origin
  // The origin was asked for the file's stat alone, to prove a record that was there, and took long
  // to answer.
  bool has_waited_for_stat = false;
  int kernel_fd = -1;
  bool is_directory = false;  // of kernel_fd
  bool is_filling = false;    // of kernel_fd: it was taken by serve_fill
  // Of kernel_fd, and of a mount: perhaps it can be served in blocks (large_files.h). If not, the
  // open counts as this.
  std::optional<base::Counter> unless_large;
  int error = 0;
  bool is_known_absent = false;  // of error: memory has said so, nobody was asked
};

}  // namespace cube::cache
