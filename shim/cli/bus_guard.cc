#include "shim/cli/bus_guard.h"

#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>

namespace cube::cli {
namespace {

// A thread and its signal handler share these flags.
thread_local volatile bool t_is_guarded = false, t_has_missed = false;

void put_zeros_there(int signal, siginfo_t* info, void* /*context*/) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto at = reinterpret_cast<std::uintptr_t>(info->si_addr) & ~(page - 1);
  if (t_is_guarded && info->si_code == BUS_ADRERR &&
      mmap(reinterpret_cast<void*>(at), page, PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED) {
    t_has_missed = true;
    return;
  }
  // The processor repeats the access after the return. With the default action, the signal then
  // ends the process.
  struct sigaction plain {};
  plain.sa_handler = SIG_DFL;
  sigaction(signal, &plain, nullptr);
}

}  // namespace

void BusGuard::install() {
  struct sigaction action {};
  action.sa_sigaction = put_zeros_there;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigaction(SIGBUS, &action, nullptr);
}

BusGuard::BusGuard() {
  t_has_missed = false;
  t_is_guarded = true;
}

BusGuard::~BusGuard() { t_is_guarded = false; }

bool BusGuard::has_missed() const { return t_has_missed; }

}  // namespace cube::cli
