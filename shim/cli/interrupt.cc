#include "shim/cli/interrupt.h"

#include <csignal>

namespace cube::cli {
namespace {

volatile std::sig_atomic_t g_signal = 0;

}  // namespace

void note_interrupts() {
  struct sigaction action {};
  action.sa_handler = [](int signal) { g_signal = signal; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

int interrupted_by() { return g_signal; }

}  // namespace cube::cli
