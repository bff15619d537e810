// Runs the server in the background, and lets the command return exactly when the mount is ready.
//
// Thread safety: call it before any thread exists.
#pragma once

#include <functional>

namespace cube::lagfs {

using Ready = std::function<void()>;

// Forks. The child runs `serve`, which calls its argument when it is ready; the child then
// continues independently. The parent returns 0 at that moment, or the child's exit code if the
// child ends first. In the child, the function does not return.
int run_in_background(const std::function<int(const Ready&)>& serve);

}  // namespace cube::lagfs
