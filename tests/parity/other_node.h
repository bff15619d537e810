// Another node of a cluster (PARITY_POOL: the address of a memcached, PORT on loopback): a process
// with a region of its own that reads files before the program under test does, so that this one
// gets them from the server. It is started by the outer process, for the tests count on the
// children and on the fds that they have. Thread safety: the main thread's only.
#pragma once

#include <string>

namespace cube::parity {

bool has_other_node();
// In the outer process; `base` holds cover/. The program under test and the other node have the
// same settings but for the region's name. Ends with this process.
void start_other_node(const std::string& base, const std::string& name);
// The body of the other node: takes paths until its parent ends.
int run_other_node(const std::string& base);
// Has it read, and shared unless that takes more than a second. By raw calls. False: it has not.
bool share_by_other_node(const std::string& base, const std::string& path);

}  // namespace cube::parity
