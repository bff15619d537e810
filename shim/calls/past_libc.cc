#include "shim/calls/past_libc.h"

#include "shim/calls/c_result.h"
#include "shim/materialize.h"
#include "shim/process.h"

namespace cube::shim::past_libc {

bool begin() { return process::is_active() && !process::g_serves_copies.exchange(true, std::memory_order_seq_cst); }

void undo() { process::g_serves_copies.store(false, std::memory_order_relaxed); }

void end(base::LogLevel level, const char* who, std::string_view call) {
  if (!process::owns_table()) return;
  const KeepErrno keep;
  materialize_all(/*only_inherited=*/false, call.data());
  base::log(level, "files are served by copies from now on, as in mode real: {} calls {} past this library", who, call);
}

}  // namespace cube::shim::past_libc
