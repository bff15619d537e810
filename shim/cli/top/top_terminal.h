// The terminal of `cubeshim top`, controlled by sequences that all current terminals support.
// Thread safety: one thread, one object.
#pragma once

#include <termios.h>

#include <memory>
#include <string>

#include "shim/cli/top/top_view.h"

namespace cube::cli {

class TopTerminal {
 public:
  // Returns null if stdin or stdout is not a terminal.
  static std::unique_ptr<TopTerminal> open();
  ~TopTerminal();  // restores the terminal
  TopTerminal(const TopTerminal&) = delete;
  TopTerminal& operator=(const TopTerminal&) = delete;

  void draw(TopView& view);
  // Returns `none` if the time has passed, if the pressed key has no meaning, or if the size of the
  // terminal has changed. Returns `quit` also if a signal ends the command, or if the terminal was
  // closed.
  TopKey wait_for_key(int milliseconds);

 private:
  TopTerminal() = default;
  void enter();
  void leave();
  void suspend();

  struct ::termios before_ {};
  bool is_in_ = false, has_colors_ = true;
  std::string shown_;  // the last frame
};

}  // namespace cube::cli
