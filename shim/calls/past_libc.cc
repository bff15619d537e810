#include "shim/calls/past_libc.h"

#include "shim/fd/fd_table.h"
#include "shim/fd/materialize.h"
#include "shim/process/c_result.h"
#include "shim/process/process.h"

namespace cube::shim::past_libc {

using process::Copies;

namespace {

// A bit for each fd, set while the ring of the fd is doubted. A ring whose fd is outside the
// table is doubted until the process ends.
constexpr int k_word_bits = 64;
constinit std::atomic<std::uint64_t> g_doubted[FdTable::k_capacity / k_word_bits];

// Sets or clears the bit of the fd, and returns its previous value.
bool exchange_doubt(int fd, bool is_doubted) {
  std::atomic<std::uint64_t>& word = g_doubted[fd / k_word_bits];
  const std::uint64_t bit = std::uint64_t{1} << (fd % k_word_bits);
  return ((is_doubted ? word.fetch_or(bit) : word.fetch_and(~bit)) & bit) != 0;
}

}  // namespace

bool begin() {
  process::g_may_close_unseen.store(true, std::memory_order_relaxed);
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

void doubt_next_ring() {
  process::g_may_close_unseen.store(true, std::memory_order_relaxed);
  process::g_doubted_rings.fetch_add(1);
}

void doubt_ring(int fd) {
  // If the bit was set already, an earlier ring had this fd and was closed without being entered.
  // It is still counted, so the new ring is not counted again.
  const bool is_counted = fd >= 0 && g_fds.is_within(fd) && exchange_doubt(fd, true);
  if (fd < 0 || is_counted) process::g_doubted_rings.fetch_sub(1);
}

void trust_ring(int fd) {
  if (process::g_doubted_rings.load(std::memory_order_relaxed) != 0 && g_fds.is_within(fd) &&
      exchange_doubt(fd, false))
    process::g_doubted_rings.fetch_sub(1);
}

void end(base::LogLevel level, const char* who, std::string_view call,
         std::string_view consequence) {
  if (!process::owns_table()) return;
  const KeepErrno keep;
  materialize_all(/*only_inherited=*/false, call.data());
  base::log(level,
            "files are served by copies from now on, as in mode real: {} calls {}, and this "
            "library does not see it{}",
            who, call, consequence);
}

}  // namespace cube::shim::past_libc
