// The calls that name a file: what each means for a path under a prefix. Everything else is left to libc.
// An open is planned before libc is asked and noted afterwards; so is a change of a name.
// Thread safety: all of it; a hit is async-signal-safe.
#pragma once

#include <cerrno>
#include <optional>

#include "shim/path_filter.h"
#include "shim/process.h"

namespace cube::shim {

// How the way of an open goes:  OpenPlan plan(dir, path, flags);
//                               if (plan.is_answered()) return plan.result();
//                               return plan.note(real::open(...));
class OpenPlan {
 public:
  OpenPlan(int dir, const char* path, int flags);

  bool is_answered() const { return answered_; }
  int result() const;  // an fd, or -1 and errno
  // libc has done it: remembers what the new fd is. Passes the fd through.
  int note(int fd);

 private:
  void serve(cache::OpenOutcome&& outcome, int flags);
  bool serve_fill(cache::Fill& fill, int fd);
  bool prefer_limit();
  void answer(int result);
  bool open_packed(const cache::PackMount& pack, const char* path, bool may_write);
  void open_directory(const cache::PackMount& pack);
  bool refuse_link();
  void open_copy(bool may_write);

  // A stranger is written by a name that is not covered; its file may have one that is.
  enum class Follow { nothing, outside, writer, stranger, directory };
  bool answered_ = false;
  int result_ = -1;  // an fd or -errno
  Follow follow_ = Follow::nothing;
  int flags_ = 0;
  const char* program_path_;
  CoveredPath path_;
  std::string_view listed_;  // of Follow::directory
};

// A path of /proc/self/fd and the like: the kernel follows it, so the number must be a kernel file.
void materialize_named(const char* path, int dir = AT_FDCWD);

// The stat of a path from its record. `no_follow`: of a link itself.
bool stat_from_record(int dir, const char* path, bool no_follow, cache::FileStat& stat, bool with_mount = false);
// access(F_OK or R_OK) of a file whose record is there. `mode` as of access(2).
bool access_from_record(int dir, const char* path, int mode);

// Paths in a pack (CUBESHIM_PACKS), directories and links too. Nothing: the path is none of these, or the pack does not have it.
std::optional<long> readlink_in_pack(int dir, const char* path, char* to, std::size_t n);
// access(2) but for F_OK and R_OK of what is cached: 0 or -errno.
std::optional<long> access_in_pack(int dir, const char* path, int mode, bool no_follow = false);
// The pack has no such thing there (if it had, it has been told): ENOENT, and not the kernel's.
bool is_below_packed(int dir, const char* path);
// The error that a file system would give for a path that neither a pack has nor the kernel. ENOENT, or what the pack knows
// better.
int error_in_pack(int dir, const char* path, bool no_follow);
// The kernel's answer, with that error where it has said ENOENT.
template <typename Result>
Result as_packed(Result result, int dir, const char* path, bool no_follow) {
  if (result == -1 && process::packs() != nullptr && errno == ENOENT) [[unlikely]]
    errno = error_in_pack(dir, path, no_follow);
  return result;
}
// The stat of what a pack has there, from the pack itself.
bool stat_of_packed(int dir, const char* path, bool no_follow, cache::FileStat& stat);
// The path of a thing that a pack has, without links below the prefix.
bool realpath_in_pack(const char* path, char (&to)[PATH_MAX]);
// The file system that a pack shows: read-only, of its size. By path, or by the fd of a directory where `path` is null.
bool statfs_of_pack(int dir, const char* path, struct ::statfs& s);
bool statvfs_of_pack(int dir, const char* path, struct ::statvfs& s);
// A directory that only a pack has cannot be the working directory. Said once.
void tell_of_working_directory(int dir, const char* path);
// The absolute path of an open directory of a pack.
bool copy_path_of_packed(int fd, char (&path)[PATH_MAX]);
// For mkdir and its like: EEXIST or EROFS where the path is in a pack, else 0.
int error_of_new_name(int dir, const char* path);
// Is the path in a pack, whether there is such a file or not? Nothing there can be changed: EROFS.
bool is_read_only(int dir, const char* path);
// The same of an open file or directory. False for the copy that a file of a pack may have become.
bool is_read_only(int fd);

// A call that changes what a name means or what its file holds: made before, committed after success.
// The right to pass through a directory, for calls that may take it away: then nothing that is cached below it may be served
// before the kernel was asked. Taken before the call. Empty: it is none, or nothing is cached.
struct Passage {
  bool is_known = false, is_lost = false;
  std::uint32_t mode = 0, user = 0, group = 0;
};
Passage passage_of(int dir, const char* path);
// An access list says more than the mode: the right is taken for lost.
Passage passage_by_attribute(int dir, const char* path, const char* name);

class NameChange {
 public:
  NameChange(int dir, const char* path, bool follows_links = false);
  void commit(const Passage& before = {});

 private:
  bool covered_ = false;
  bool by_fd_ = false;              // AT_EMPTY_PATH
  const char* followed_ = nullptr;  // the path, where the call follows a link at its end
  std::string_view prefix_;         // that the path is, or lies above
  int dir_ = AT_FDCWD;
  std::optional<cache::FileStat> before_;
  CoveredPath path_;
};

// The file behind an fd was changed in a way that its opening did not tell (fchmod).
void note_changed(int fd, const Passage& before = {});

// An fd that no open of a path has made: if it can be written by, its file is being written until it is closed. Passes it
// through.
int note_foreign_fd(int fd);
// A file that another process, which may not be under the library, has opened for writing by now: it is taken for written until
// this process ends.
void note_foreign_writer(int dir, const char* path);

}  // namespace cube::shim
