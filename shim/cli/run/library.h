// The files that came with this command, and how a program is made to load them. Thread safety: not
// while others read the environment.
#pragma once

#include <initializer_list>
#include <string>

namespace cube::cli {

// The directory of this command, with a slash.
std::string own_folder();
// The first of these places that is there, or nothing. In a directory where all may write, such as
// /tmp, another user may have put a file beside this command: one counts that this user, root or
// the owner of the command has.
std::string first_found(std::initializer_list<std::string> places);
// libcubeshim.so beside this command (a build), or in the folders for libraries of Debian, of Red
// Hat and of all others.
std::string find_library();
// value:others
void put_in_front(const char* variable, const std::string& value);

}  // namespace cube::cli
