#include <cerrno>

#include "shim/background.h"
#include "shim/cubeshim.h"
#include "shim/process.h"

using namespace cube::shim;

__attribute__((visibility("default"))) int cubeshim_start_sidecar(void) {
  if (!process::is_active() || !process::config().prefetch) return ENOTSUP;
  return background::start() ? 0 : EAGAIN;
}
