// Converts a path that the program passes into an absolute, normalized path, if a prefix covers it.
// The filter removes "." and "//" by text. The kernel must follow "..", because the part before
// ".." may be a link. A path that the filter does not recognize counts as not covered, which only
// costs time. A path that is not covered costs one pass over its text and no system call. If such a
// path has ".." and may lead to a prefix, it costs two system calls. Thread-safe and
// async-signal-safe; allocates nothing.
#pragma once

#include <cstdint>
#include <string_view>

#include "shim/path/path_builder.h"
#include "shim/process/libc_types.h"
#include "shim/process/process.h"
#include "shim/process/user_pointer.h"

namespace cube::shim {

namespace path_filter {

// `thorough` is for changes, which must not be missed. With `thorough`, the kernel is asked for the
// paths of directories; noted paths are not used.
enum class Care { quick, thorough };
bool covers(int dir, const char* path, CoveredPath& covered, Care care = Care::quick);
// Like covers(), but returns false if this process does not serve files.
inline bool covers_served(int dir, const char* path, CoveredPath& covered,
                          Care care = Care::quick) {
  return process::is_active() && process::owns_table() && covers(dir, path, covered, care);
}
// Like a thorough covers(), but for a path that a call changes. The path may end in a slash or a
// dot if it names a directory.
bool covers_changed(int dir, const char* path, CoveredPath& covered);
// False for a null or non-canonical pointer, which the kernel refuses.
inline bool is_readable_pointer(const char* path) {
  const std::uintptr_t address = address_of(path);
  return address >= k_user_begin && address < k_user_end;
}
// True if the kernel would return EFAULT although the value of the pointer is valid. Costs a system
// call for each page of the path, so use it only for calls that ask the origin anyway. If this
// process serves nothing, makes no system call.
bool is_unmapped(const char* path);
// Accepts any pointer that a program may pass.
inline bool is_absolute(const char* path) { return is_readable_pointer(path) && *path == '/'; }
// Like covers(), but also true for the prefix itself, and for paths that end in a slash or a dot.
// Used for paths that the kernel does not know (origin_metadata).
bool covers_directory(int dir, const char* path, CoveredPath& covered);
// Makes a path with ".." absolute, but keeps the "..". Used for paths that the kernel does not
// know, in which origin_metadata follows "..". Returns false if the path has no "..".
bool spells_up(int dir, const char* path, CoveredPath& spelled);
bool join(std::string_view prefix, std::string_view below, CoveredPath& joined);
// If the path is a prefix, sets `prefix` to it and returns true.
bool is_prefix(int dir, const char* path, std::string_view& prefix);
// True if the path is a prefix or a directory above a prefix. A rename of such a path affects the
// prefix. Sets `prefix` to that prefix.
bool is_prefix_or_above(int dir, const char* path, std::string_view& prefix);
// Returns the prefix that the path names, or an empty view. The path may end in a slash. Compares
// only text, so a path with "." or "//" is not recognized.
std::string_view prefix_named(const char* path);
// True if a prefix covers an absolute path that was assembled from cached metadata.
bool covers_found(std::string_view path);
// True if the text alone proves that the path lies outside all prefixes, is not above a prefix, and
// names no fd. Such a path is absolute, has no ".", ".." or "//", and lies elsewhere.
bool passes_by(const char* path);
// True if paths relative to this directory may lead under a prefix: the directory is a prefix, lies
// below a prefix, or contains a prefix.
bool may_lead_under_prefix(int dir, const char* path);
// Like may_lead_under_prefix(), but for a path that may name a file. Returns true if the text names
// a prefix or a directory above a prefix, or if the path is relative to an open directory that may
// lead under a prefix. Otherwise returns false.
bool may_name_prefix_or_above(int dir, const char* path);

// Call this when paths may lead elsewhere, because a file system was mounted or a directory was
// renamed.
void forget_found_directories();
// Call this when the working directory has changed.
void forget_working_directory();

}  // namespace path_filter
}  // namespace cube::shim
