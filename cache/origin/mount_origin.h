// The origin of whatever the kernel has mounted: questions go to the kernel.
// Thread safety: as Origin.
#pragma once

#include "cache/origin/origin.h"

namespace cube::cache {

// The one of this process. It is never destroyed.
const Origin& mount_origin();

}  // namespace cube::cache
