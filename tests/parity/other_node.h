// Another node of a cluster (PARITY_POOL: the address of a memcached, PORT on loopback): a process
// with a region of its own that reads files before the program under test does, so that the program
// gets them from the server. The outer process starts it, because the tests count their own
// children and fds. Thread safety: only the main thread.
#pragma once

#include <string>

namespace cube::parity {

bool has_other_node();
// Called in the outer process; `base` holds cover/. The program under test and the other node have
// the same settings except for the region's name. The node ends with this process.
void start_other_node(const std::string& base, const std::string& name);
// The body of the other node: takes paths until its parent ends.
int run_other_node(const std::string& base);
// Makes the node read the file and share it, unless that takes more than a second. Uses raw calls.
// False if it has not shared it.
bool share_by_other_node(const std::string& base, const std::string& path);

}  // namespace cube::parity
