#include "shim/cli/top/top_terminal.h"

#ifdef CUBESHIM_HAS_NCURSES

#define NCURSES_NOMACROS
#include <ncurses.h>
#include <poll.h>
#include <unistd.h>

#include <cstdio>

namespace cube::cli {
namespace {

constexpr int k_escape = 27, k_delete = 127, k_escape_delay_ms = 25;

TopKey key_of(int code) {
  switch (code) {
    case 'q':
    case 'Q': return TopKey::quit;
    case 'k':
    case KEY_UP: return TopKey::up;
    case 'j':
    case KEY_DOWN: return TopKey::down;
    case KEY_PPAGE: return TopKey::page_up;
    case KEY_NPAGE: return TopKey::page_down;
    case '\n':
    case '\r':
    case KEY_ENTER:
    case KEY_RIGHT: return TopKey::enter;
    case k_escape:
    case k_delete:
    case '\b':
    case KEY_BACKSPACE:
    case KEY_LEFT: return TopKey::back;
    case 's': return TopKey::next_sort;
    case 'S': return TopKey::last_sort;
    case 'r': return TopKey::reverse;
    case '\t': return TopKey::next_set;
    case 'h':
    case '?': return TopKey::help;
    default: return TopKey::none;
  }
}

attr_t attributes_of(ScreenLine::Look look) {
  switch (look) {
    case ScreenLine::Look::heading: return A_UNDERLINE;
    case ScreenLine::Look::selected: return A_REVERSE;
    case ScreenLine::Look::strong: return A_BOLD;
    default: return A_NORMAL;
  }
}

}  // namespace

std::unique_ptr<TopTerminal> TopTerminal::open() {
  if (isatty(STDIN_FILENO) == 0 || isatty(STDOUT_FILENO) == 0) return nullptr;
  SCREEN* const screen = newterm(nullptr, stdout, stdin);
  if (screen == nullptr) return nullptr;
  std::unique_ptr<TopTerminal> terminal(new TopTerminal(screen));
  cbreak();
  noecho();
  keypad(stdscr, TRUE);
  set_escdelay(k_escape_delay_ms);
  curs_set(0);
  return terminal;
}

TopTerminal::~TopTerminal() {
  endwin();
  delscreen(static_cast<SCREEN*>(screen_));
}

void TopTerminal::draw(TopView& view) {
  const int rows = getmaxy(stdscr), columns = getmaxx(stdscr);
  werase(stdscr);
  int row = 0;
  for (const ScreenLine& line :
       view.lines(static_cast<std::size_t>(rows), static_cast<std::size_t>(columns))) {
    wattrset(stdscr, static_cast<int>(attributes_of(line.look)));
    mvwaddnstr(stdscr, row++, 0, line.text.c_str(), static_cast<int>(line.text.size()));
  }
  wattrset(stdscr, A_NORMAL);
  wrefresh(stdscr);
}

TopKey TopTerminal::wait_for_key(int milliseconds) {
  wtimeout(stdscr, milliseconds);
  const int code = wgetch(stdscr);
  if (code != ERR) return key_of(code);
  // A terminal that has gone reports input at once, again and again.
  pollfd input{STDIN_FILENO, POLLIN, 0};
  const bool is_gone =
      poll(&input, 1, 0) > 0 && (input.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0;
  return is_gone ? TopKey::quit : TopKey::none;
}

}  // namespace cube::cli

#else

namespace cube::cli {

std::unique_ptr<TopTerminal> TopTerminal::open() { return nullptr; }
TopTerminal::~TopTerminal() = default;
void TopTerminal::draw(TopView&) {}
TopKey TopTerminal::wait_for_key(int) { return TopKey::quit; }

}  // namespace cube::cli

#endif
