// The terminal of `cubeshim top`, by ncurses. Thread safety: one thread, one object.
#pragma once

#include <memory>
#include <vector>

#include "shim/cli/top/top_view.h"

namespace cube::cli {

class TopTerminal {
 public:
  // Null if stdin or stdout is not a terminal, its kind is unknown, or the command was built
  // without ncurses.
  static std::unique_ptr<TopTerminal> open();
  ~TopTerminal();  // restores the terminal
  TopTerminal(const TopTerminal&) = delete;
  TopTerminal& operator=(const TopTerminal&) = delete;

  void draw(TopView& view);
  // Returns `none` if the time has passed, another key was pressed, or the size of the terminal has
  // changed.
  TopKey wait_for_key(int milliseconds);

 private:
  explicit TopTerminal(void* screen) : screen_(screen) {}
  void* const screen_;
};

}  // namespace cube::cli
