// The origin of all paths on file systems that the kernel has mounted. This origin forwards all
// requests to the kernel. Thread safety: as Origin.
#pragma once

#include "cache/origin/origin.h"

namespace cube::cache {

// The single instance of the process, which is never destroyed.
const Origin& mount_origin();

}  // namespace cube::cache
