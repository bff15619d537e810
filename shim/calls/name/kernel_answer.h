// Corrects the cache by the kernel's answers to calls with a path. A call that the cache did not
// answer passes its result through told(), which corrects the cache before the program sees the
// result (cache/corrections.h):
//   return told(real::chdir(path), {.path = path, .wants = PathCall::Wants::directory});
// Keeps errno. Thread-safe and async-signal-safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/process/libc_types.h"

namespace cube::shim {

struct PathCall {
  // The condition under which the call can succeed, about the name at the end of the path.
  enum class Wants : std::uint8_t {
    name,       // the name exists
    directory,  // the name is a directory
    file,       // the name is not a directory
    link,       // the name is a link
    new_name,   // the name does not exist
    any_name,   // none: a missing name is created
  };
  int dir = AT_FDCWD;
  const char* path = nullptr;
  Wants wants = Wants::name;
  bool no_follow = false;
  // ENOENT may concern another path, or the content of the file.
  bool has_other_reasons = false;
  // The call changes names. A process without a cache then attaches to an existing region, to
  // correct it.
  bool is_change = false;
};

namespace kernel_answer {

// Like told(), for a call that does not return -1 and errno. `error` is 0 for success.
void learn(const PathCall& call, int error);

}  // namespace kernel_answer

// `result` is libc's: -1 (with errno) for a failure. Replaces ENOENT by the more precise error of a
// pack or bucket, if there is one (metadata.h).
long told(long result, const PathCall& call);
inline int told(int result, const PathCall& call) {
  return static_cast<int>(told(static_cast<long>(result), call));
}
inline long told(long result, int dir, const char* path, bool no_follow) {
  return told(result, {.dir = dir, .path = path, .no_follow = no_follow});
}
inline int told(int result, int dir, const char* path, bool no_follow) {
  return told(result, {.dir = dir, .path = path, .no_follow = no_follow});
}
// For stat(2) and its variants. `st` is null if another library may have written the result.
int told_stat(int result, int dir, const char* path, bool no_follow, const struct ::stat* st);
int told_statx(int result, int dir, const char* path, bool no_follow, const struct ::statx* x);
// For readlink(2) into a buffer of `room` bytes.
long told_link(long length, int dir, const char* path, const char* to, std::size_t room);

}  // namespace cube::shim
