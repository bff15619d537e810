// The terminal under `cubeshim top`, by ncurses. Thread safety: one thread, one object.
#pragma once

#include <memory>
#include <vector>

#include "shim/cli/top/top_view.h"

namespace cube::cli {

class TopTerminal {
 public:
  // Null: stdin or stdout is no terminal, its kind is not known, or the command was built without
  // ncurses.
  static std::unique_ptr<TopTerminal> open();
  ~TopTerminal();  // gives the terminal back as it was
  TopTerminal(const TopTerminal&) = delete;
  TopTerminal& operator=(const TopTerminal&) = delete;

  void draw(TopView& view);
  // none: so much time has passed, another key was pressed, or the terminal has another size.
  TopKey wait_for_key(int milliseconds);

 private:
  explicit TopTerminal(void* screen) : screen_(screen) {}
  void* const screen_;
};

}  // namespace cube::cli
