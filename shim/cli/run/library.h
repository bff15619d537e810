// Finds the files that were installed with this command, and makes a program load them. Thread
// safety: put_in_front must not run while another thread reads the environment.
#pragma once

#include <initializer_list>
#include <string>

namespace cube::cli {

// Returns the directory of this command, with a slash at the end.
std::string own_folder();
// Returns the first of these places that exists and belongs to this user, to root or to the owner
// of this command. If there is no such place, returns "". Other owners are not trusted. If all
// users can write to the directory of this command (as in /tmp), another user could have put a file
// next to it.
std::string first_found(std::initializer_list<std::string> places);
// Returns the path of libcubeshim.so, which is next to this command (in a build) or in a library
// folder of Debian, Red Hat or other systems.
std::string find_library();
// Sets the variable to "value:OLD", or to "value" if it has no old value.
void put_in_front(const char* variable, const std::string& value);

}  // namespace cube::cli
