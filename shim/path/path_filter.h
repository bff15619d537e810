// From a path as the program gives it to an absolute, normalised one, if a prefix covers it.
// "." and "//" are taken out by text; ".." is only ever followed by the kernel, for what lies
// before it may be a link. A path that the filter does not recognise is "not covered": a path that
// is missed is only slow. Cost where no prefix covers: one pass over the path, no system call (two
// with ".." in a path that may lead to one). Thread safety: all of it; async-signal-safe, no
// allocation.
#pragma once

#include <cstdint>
#include <string_view>

#include "shim/path/path_builder.h"
#include "shim/process/libc_types.h"
#include "shim/process/process.h"
#include "shim/process/user_pointer.h"

namespace cube::shim {

namespace path_filter {

// `thorough` is for changes, which must not be missed: directories are asked of the kernel, not of
// what was noted of them.
enum class Care { quick, thorough };
bool covers(int dir, const char* path, CoveredPath& covered, Care care = Care::quick);
// The same, and this process serves files.
inline bool covers_served(int dir, const char* path, CoveredPath& covered,
                          Care care = Care::quick) {
  return process::is_active() && process::owns_table() && covers(dir, path, covered, care);
}
// covers() for what a call changes, thoroughly. It may be a directory whose name is spelled with a
// slash or a dot at its end.
bool covers_changed(int dir, const char* path, CoveredPath& covered);
// A null or non-canonical pointer is the kernel's to refuse.
inline bool is_readable_pointer(const char* path) {
  const std::uintptr_t address = address_of(path);
  return address >= 4096 && address < k_user_end;
}
// Would the kernel say EFAULT, though the pointer looks like one? A system call for each page of
// the path: for calls that go to the origin in any case. It asks nothing if nobody reads the path.
bool is_unmapped(const char* path);
// Takes any pointer that a program may give.
inline bool is_absolute(const char* path) { return is_readable_pointer(path) && *path == '/'; }
// covers() for a directory: the prefix itself, and what ends in a slash or a dot. For our own names
// (names.h).
bool covers_directory(int dir, const char* path, CoveredPath& covered);
// A path with ".." in it, made absolute, the ".." left in it. For our own names, which follow it
// themselves. False: without "..".
bool spells_up(int dir, const char* path, CoveredPath& spelled);
bool join(std::string_view prefix, std::string_view below, CoveredPath& joined);
// Is it a prefix? `prefix` is then set.
bool is_prefix(int dir, const char* path, std::string_view& prefix);
// Is it a prefix, or a directory above one? Renaming it changes what lies below. `prefix` is then
// set.
bool is_prefix_or_above(int dir, const char* path, std::string_view& prefix);
// Is it the absolute path of a prefix, plainly written? With a slash behind it or without. Text
// only; empty if not.
std::string_view prefix_named(const char* path);
// Does a prefix cover an absolute path that memory has put together?
bool covers_found(std::string_view path);
// Certainly neither covered, nor a prefix, nor a name of an fd, by a look at the text alone:
// absolute, plainly written, elsewhere.
bool passes_by(const char* path);
// Does an open directory of this path lead, or may it lead, under a prefix? (It is one, or it holds
// one.)
bool may_lead_under_prefix(int dir, const char* path);

// A path may lead elsewhere from now on: something was mounted, or a directory renamed.
void forget_found_directories();
// The working directory has changed.
void forget_working_directory();

}  // namespace path_filter
}  // namespace cube::shim
