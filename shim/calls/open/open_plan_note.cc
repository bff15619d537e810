// The part of OpenPlan that follows libc's open: notes which file the new fd refers to, and
// corrects the cache by the kernel's answer.
#include "shim/calls/directory/listing_prefetch.h"
#include "shim/calls/name/kernel_answer.h"
#include "shim/calls/name/name_change.h"
#include "shim/calls/open/open_plan.h"
#include "shim/calls/open/opened_writers.h"
#include "shim/fd/fd_table.h"
#include "shim/path/spelling.h"
#include "shim/process/attachment.h"

namespace cube::shim {

// True if `fd` refers to the listed file. False for the target of a listed link, and for a new file
// that has replaced the listed file.
bool OpenPlan::is_listed(const cache::FileCache& cache, int fd) const {
  const KeepErrno keep;
  const auto stat = cache::stat_path(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC);
  return stat && cache.metadata().was_listed(path_.key(), *stat);
}

// Notes a name that the open has made. A file that was already in the directory's listing is not
// new.
void OpenPlan::note_new_name(int fd) {
  constexpr int k_nameless = O_TMPFILE & ~O_DIRECTORY;
  if ((flags_ & O_CREAT) == 0 || (flags_ & k_nameless) != 0) return;
  const bool has_key = follow_ == Follow::writer, may_be_old = (flags_ & O_EXCL) == 0;
  const auto* const cache = attachment::attached_cache();
  if (has_key && may_be_old && cache != nullptr && is_listed(*cache, fd)) return;
  NameChange::note_entry_of(fd, dir_, program_path_);
}

// Corrects the cache by the kernel's answer.
void OpenPlan::learn(int error) const {
  using Wanted = PathCall::Wants;
  const bool for_path_only = (flags_ & O_PATH) != 0,
             is_nameless = (flags_ & O_TMPFILE) == O_TMPFILE;
  const bool makes = (flags_ & O_CREAT) != 0 && !is_nameless && !for_path_only;
  const Wanted wants = makes ? (flags_ & O_EXCL) != 0 ? Wanted::new_name : Wanted::any_name
                       : (flags_ & O_DIRECTORY) != 0   ? Wanted::directory
                       : may_write() && !for_path_only ? Wanted::file
                                                       : Wanted::name;
  kernel_answer::learn({.dir = dir_,
                        .path = program_path_,
                        .wants = wants,
                        .no_follow = (flags_ & O_NOFOLLOW) != 0,
                        .is_change = may_write() && !for_path_only},
                       error);
}

int OpenPlan::note(int fd) {
  learn(fd < 0 ? errno : 0);
  if (fd < 0 || (!process::is_active() && follow_ == Follow::nothing)) return fd;
  note_new_name(fd);
  constexpr int k_new_name = O_CREAT | O_EXCL;
  const bool is_new =
      (flags_ & O_PATH) == 0 &&
      (was_absent_ || (flags_ & k_new_name) == k_new_name || (flags_ & O_TMPFILE) == O_TMPFILE);
  const std::uint64_t made_after_ns = is_new ? begun_ns_ : 0;
  if (!process::owns_table()) {
    if (follow_ == Follow::stranger) note_vforked_writer(fd, made_after_ns);
    return fd;
  }
  g_fds.forget(fd);
  const bool close_on_exec = (flags_ & O_CLOEXEC) != 0;
  if (follow_ == Follow::writer) note_writer(fd, path_.key(), close_on_exec, made_after_ns);
  if (follow_ == Follow::stranger) note_writer(fd, {}, close_on_exec, made_after_ns);
  if (follow_ == Follow::direct) serve_in_blocks(fd, base::Counter::bypassed_flags);
  if (follow_ == Follow::outside) spelling::opened_outside(fd, program_path_);
  if (follow_ == Follow::directory) {
    g_fds.set_directory(fd);
    listing_prefetch::note_listing(listed_);
  }
  return fd;
}

}  // namespace cube::shim
