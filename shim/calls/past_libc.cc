#include "shim/calls/past_libc.h"

#include "shim/fd/materialize.h"
#include "shim/process/c_result.h"
#include "shim/process/process.h"

namespace cube::shim::past_libc {

using process::Copies;

bool begin() {
  return process::is_active() &&
         process::g_serves_copies.exchange(Copies::yes, std::memory_order_seq_cst) != Copies::yes;
}

void undo() { process::g_serves_copies.store(Copies::no, std::memory_order_relaxed); }

bool doubt() {
  auto none = Copies::no;
  return process::g_serves_copies.compare_exchange_strong(none, Copies::for_now,
                                                          std::memory_order_seq_cst);
}

bool is_doubted() {
  return process::g_serves_copies.load(std::memory_order_relaxed) == Copies::for_now;
}

void trust() {
  auto for_now = Copies::for_now;
  process::g_serves_copies.compare_exchange_strong(for_now, Copies::no, std::memory_order_relaxed);
}

void end(base::LogLevel level, const char* who, std::string_view call) {
  if (!process::owns_table()) return;
  const KeepErrno keep;
  materialize_all(/*only_inherited=*/false, call.data());
  base::log(level,
            "files are served by copies from now on, as in mode real: {} calls {}, and this "
            "library does not see it",
            who, call);
}

}  // namespace cube::shim::past_libc
