// Another node of a cluster: a process with its own region that reads files before the program
// under test, so that the program gets them from the server. PARITY_POOL gives the server's
// address, a memcached at PORT on loopback. The outer process starts the node, because the tests
// count their own children and fds. Thread safety: only the main thread.
#pragma once

#include <string>

namespace cube::parity {

bool has_other_node();
// Called in the outer process. `base` holds cover/. The program under test and the other node have
// the same settings except for the region's name. The node ends when the calling process ends.
void start_other_node(const std::string& base, const std::string& name);
// The body of the other node: it accepts paths until its parent ends.
int run_other_node(const std::string& base);
// Makes the node read and share the file, and waits for this at most a second. Returns false if the
// node has not shared the file. Makes raw calls only.
bool share_by_other_node(const std::string& base, const std::string& path);

}  // namespace cube::parity
