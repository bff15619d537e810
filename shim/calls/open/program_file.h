// Programs and libraries among our paths (unmounted_paths.h). The kernel and the loader, whose
// opens bypass this library, get the name of a copy in /proc/self/fd. Thread-safe. ProgramFile is
// async-signal-safe and works in a child of vfork.
#pragma once

#include <cstddef>

#include "cache/base/process/proc_fd_name.h"
#include "cache/base/unique_fd.h"

namespace cube::shim {

// The file of an exec. A script is not copied, because its interpreter opens it by its own name
// through this library.
class ProgramFile {
 public:
  explicit ProgramFile(const char* path);
  ProgramFile(const ProgramFile&) = delete;
  ProgramFile& operator=(const ProgramFile&) = delete;

  // The errno with which the exec must fail, or 0.
  int error() const { return error_; }
  bool is_script() const { return interpreter_[0] != '\0'; }
  // Returns the name to execute instead of `path`. If the kernel has the file, returns `path`.
  const char* to_execute(const char* path) const {
    return is_script() ? interpreter_ : copy_ ? copy_name_.c_str() : path;
  }
  // put_arguments() writes the arguments of a script's interpreter into `room`, which has
  // room_for() bytes.
  static std::size_t room_for(char* const* arguments);
  char* const* put_arguments(const char* path, char* const* arguments, void* room) const;

 private:
  void read_head();

  int error_ = 0;
  base::UniqueFd copy_;
  base::ProcFdName copy_name_{-1};
  char interpreter_[256] = {};
  const char* argument_ = nullptr;  // points into interpreter_
};

// Returns the name to load instead of the library `path`. If the kernel has the library, returns
// `path`. While the object is unchanged, the name stays the same, because the loader distinguishes
// libraries by their files.
const char* name_for_loader(const char* path);

}  // namespace cube::shim
