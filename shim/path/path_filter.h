// Turns a path as the program gives it into an absolute, normalized one, if a prefix covers it. "."
// and "//" are removed by text; only the kernel follows "..", because the part before it may be a
// link. A path that the filter does not recognize counts as not covered, which only costs time.
// Cost if no prefix covers: one pass over the path, no system call (two with ".." in a path that
// may lead to a prefix). Thread-safe and async-signal-safe; allocates nothing.
#pragma once

#include <cstdint>
#include <string_view>

#include "shim/path/path_builder.h"
#include "shim/process/libc_types.h"
#include "shim/process/process.h"
#include "shim/process/user_pointer.h"

namespace cube::shim {

namespace path_filter {

// `thorough` is for changes, which must not be missed: it asks the kernel about directories instead
// of relying on what was noted.
enum class Care { quick, thorough };
bool covers(int dir, const char* path, CoveredPath& covered, Care care = Care::quick);
// Like covers(), but false unless this process serves files.
inline bool covers_served(int dir, const char* path, CoveredPath& covered,
                          Care care = Care::quick) {
  return process::is_active() && process::owns_table() && covers(dir, path, covered, care);
}
// Like a thorough covers(), but for a path that a call changes, and which may be a directory with a
// trailing slash or dot.
bool covers_changed(int dir, const char* path, CoveredPath& covered);
// False for a null or non-canonical pointer, which the kernel refuses.
inline bool is_readable_pointer(const char* path) {
  const std::uintptr_t address = address_of(path);
  return address >= k_user_begin && address < k_user_end;
}
// True if the kernel would return EFAULT although the pointer looks valid. It costs a system call
// for each page of the path, so it is for calls that go to the origin in any case; it costs none if
// this process serves nothing.
bool is_unmapped(const char* path);
// Accepts any pointer that a program may pass.
inline bool is_absolute(const char* path) { return is_readable_pointer(path) && *path == '/'; }
// Like covers(), but for directories: also true for the prefix itself, and for paths that end in a
// slash or a dot. For paths that the kernel does not know (origin_metadata).
bool covers_directory(int dir, const char* path, CoveredPath& covered);
// Makes a path with ".." absolute and leaves the ".." in it. For paths that the kernel does not
// know: origin_metadata follows their "..". Returns false if there is no "..".
bool spells_up(int dir, const char* path, CoveredPath& spelled);
bool join(std::string_view prefix, std::string_view below, CoveredPath& joined);
// If the path is a prefix, sets `prefix` to it and returns true.
bool is_prefix(int dir, const char* path, std::string_view& prefix);
// True if the path is a prefix, or a directory above one: renaming it changes what lies below.
// Sets `prefix` to that prefix.
bool is_prefix_or_above(int dir, const char* path, std::string_view& prefix);
// Returns the prefix that the path names, with or without a trailing slash, or an empty view.
// Compares text only, so "." and "//" are not recognized.
std::string_view prefix_named(const char* path);
// True if a prefix covers an absolute path that was put together from cached metadata.
bool covers_found(std::string_view path);
// True if the text alone proves that the path is neither covered, nor a prefix or a directory above
// one, nor that of an fd: it is absolute, has no ".", ".." or "//", and lies elsewhere.
bool passes_by(const char* path);
// True if an open directory of this path leads, or may lead, under a prefix: it is a prefix, lies
// below one, or contains one.
bool may_lead_under_prefix(int dir, const char* path);
// Like may_lead_under_prefix(), but for a path that may be that of a file: false unless the text
// names a prefix or a directory above one, or begins at an open directory that may lead under one.
bool may_name_prefix_or_above(int dir, const char* path);

// Call it when a path may lead elsewhere from now on, because a file system was mounted or a
// directory renamed.
void forget_found_directories();
// Call it when the working directory has changed.
void forget_working_directory();

}  // namespace path_filter
}  // namespace cube::shim
