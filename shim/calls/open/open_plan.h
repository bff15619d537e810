// OpenPlan decides whether the shim answers an open. If the shim does not, libc opens the file and
// note() records the fd:
//   OpenPlan plan(dir, path, flags);
//   if (plan.is_answered()) return plan.result();
//   return plan.note(real::open(...));
// Thread safety: each object belongs to one call; any number of objects may exist at a time. A hit
// is async-signal-safe.
#pragma once

#include <cstdint>
#include <string_view>

#include "shim/path/path_filter.h"
#include "shim/process/c_result.h"
#include "shim/process/process.h"

namespace cube::shim {

class OpenPlan {
 public:
  OpenPlan(int dir, const char* path, int flags);

  bool is_answered() const { return answered_; }
  // An fd, or -1 and errno.
  int result() const { return static_cast<int>(to_c(result_)); }
  // Call this with the result of libc's open (-1 and errno if it failed). Records the use of the
  // new fd. Returns the fd.
  int note(int fd);

 private:
  // The subject of an open. Most kinds have a plan_... function below.
  enum class Kind : std::uint8_t {
    name_without_table,  // one of our paths (name/unmounted_paths.h), in a child of vfork or a
                         // similar child, whose fds the table does not describe
    name,                // one of our paths, opened to change it, as a directory, or with O_PATH
    below_served,        // below a served directory, but not one of our paths
    outside,             // no prefix covers it
    change,              // a file below a prefix, for writing
    directory,           // a directory below a prefix
    kernel_flags,        // an open with flags that only the kernel can follow
    file                 // a file below a prefix, for reading
  };
  Kind classify();
  void plan(Kind kind);
  void plan_outside();
  void plan_change();
  void plan_directory();
  void plan_kernel_flags();
  void plan_name();
  void plan_name_without_table();
  void plan_file();

  bool needs_kernel() const;
  int error_of_change() const;
  void open_directory();
  void open_copy();
  bool refuse_link();
  void open_cached(cache::FileCache& cache);
  struct Opened {
    bool was_fetched, has_waited_for_stat, is_kernels_error;
    std::uint64_t fetched_bytes;
  };
  // Not inlined, so that the outcome is off the stack when the cache learns the kernel's answer.
  [[gnu::noinline]] Opened open_and_serve(cache::FileCache& cache);
  void serve(cache::OpenOutcome&& outcome);
  void serve_object(cache::LargeFile& object);
  bool serve_fill(cache::PartialFill& fill, int fd);
  void serve_in_blocks(int fd, base::Counter otherwise);
  void count_unserved(base::Counter reason) const;
  bool prefer_limit();
  void answer(int result);
  bool may_write() const;
  bool is_listed(const cache::FileCache& cache, int fd) const;
  void note_new_name(int fd);
  void learn(int error) const;

  // How libc's fd is used.
  enum class Follow : std::uint8_t {
    nothing,
    outside,
    writer,
    stranger,  // opened for writing by an uncovered path; a covered path may lead to it, too
    directory,
    direct  // opened with O_DIRECT
  };

  int dir_;
  const char* program_path_;
  int flags_;
  bool answered_ = false;
  int result_ = -1;  // an fd or -errno
  Follow follow_ = Follow::nothing;
  bool was_absent_ = false;     // the server had no such file just before the open
  std::uint64_t begun_ns_ = 0;  // base::boot_ns at the beginning, if the open may make a file
  const cache::Metadata* metadata_ = nullptr;  // the metadata that has the path; null if the
                                               // kernel has the path
  std::string_view listed_;                    // of Follow::directory
  CoveredPath path_;
};

}  // namespace cube::shim
