#include <cerrno>

#include "shim/cubeshim.h"
#include "shim/fd/noted_opens.h"
#include "shim/process/process.h"
#include "shim/threads/own_threads.h"

using namespace cube::shim;

__attribute__((visibility("default"))) int cubeshim_start_sidecar(void) {
  if (!process::is_active() || !process::config().prefetch) return ENOTSUP;
  return own_threads::start() ? 0 : EAGAIN;
}

__attribute__((visibility("default"))) void* cubeshim_noted_opens(size_t* size) {
  return process::is_active() ? noted_opens::claim(size) : nullptr;
}
