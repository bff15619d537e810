// Finds the files that came with this command, and makes a program load them. Thread safety: not
// while others read the environment.
#pragma once

#include <initializer_list>
#include <string>

namespace cube::cli {

// The directory of this command, with a slash at the end.
std::string own_folder();
// Returns the first of these places that exists and belongs to this user, to root or to the owner
// of this command; otherwise "". Other owners are not trusted: in a directory where all users may
// write, such as /tmp, another user may have put a file next to this command.
std::string first_found(std::initializer_list<std::string> places);
// libcubeshim.so next to this command (a build), or in the library folders of Debian, of Red Hat or
// of other systems.
std::string find_library();
// Sets the variable to "value:others".
void put_in_front(const char* variable, const std::string& value);

}  // namespace cube::cli
