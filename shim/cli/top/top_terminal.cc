#include "shim/cli/top/top_terminal.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string_view>

#include "shim/cli/color.h"

namespace cube::cli {
namespace {

// An escape byte that nothing follows within this time is the Escape key.
constexpr int k_escape_delay_ms = 25;
constexpr char k_interrupt = 3, k_suspend = 26, k_escape = 27, k_delete = 127;

volatile std::sig_atomic_t g_end_signal = 0;

// The signal interrupts the wait for a key.
void note_signal(int signal) {
  if (signal != SIGWINCH && signal != SIGCONT) g_end_signal = signal;
}

TopKey key_of_letter(char c) {
  switch (c) {
    case 'q':
    case 'Q':
    case k_interrupt: return TopKey::quit;
    case 'k': return TopKey::up;
    case 'j': return TopKey::down;
    case '\n':
    case '\r': return TopKey::enter;
    case k_escape:
    case k_delete:
    case '\b': return TopKey::back;
    case 's': return TopKey::next_sort;
    case 'S': return TopKey::last_sort;
    case 'r': return TopKey::reverse;
    case '\t': return TopKey::next_set;
    case 'h':
    case '?': return TopKey::help;
    default: return TopKey::none;
  }
}

// Returns the key for the bytes after ESC, as in "ESC [ A" or "ESC O A".
TopKey key_of_sequence(std::string_view rest) {
  if (rest == "[A" || rest == "OA") return TopKey::up;
  if (rest == "[B" || rest == "OB") return TopKey::down;
  if (rest == "[C" || rest == "OC") return TopKey::enter;
  if (rest == "[D" || rest == "OD") return TopKey::back;
  if (rest == "[5~") return TopKey::page_up;
  if (rest == "[6~") return TopKey::page_down;
  return TopKey::none;
}

bool has_input(int at_most_ms) {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  return poll(&input, 1, at_most_ms) > 0 && (input.revents & POLLIN) != 0;
}

const char* begin_of(Paint paint) {
  switch (paint) {
    case Paint::good: return k_good;
    case Paint::fair: return k_fair;
    case Paint::bad: return k_bad;
    case Paint::faint: return "\x1b[2m";
    default: return "";
  }
}

const char* begin_of(ScreenLine::Look look) {
  switch (look) {
    case ScreenLine::Look::heading: return "\x1b[4m";
    case ScreenLine::Look::selected: return "\x1b[7m";
    case ScreenLine::Look::strong: return "\x1b[1m";
    default: return "";
  }
}

// Returns the line with the sequences for its attributes. Lines in reverse video are not painted.
std::string drawn(const ScreenLine& line, bool has_colors) {
  std::string text = begin_of(line.look);
  std::size_t at = 0;
  for (const PaintedPart& part : line.parts) {
    if (!has_colors || part.begin >= part.end || part.begin < at) continue;
    text += line.text.substr(at, part.begin - at);
    text += begin_of(part.paint) + line.text.substr(part.begin, part.end - part.begin) + "\x1b[0m";
    text += begin_of(line.look);
    at = part.end;
  }
  return text + line.text.substr(at) + "\x1b[0m\x1b[K";
}

bool is_utf8() {
  for (const char* const name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* const value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    const std::string_view text(value);
    return text.find("UTF-8") != std::string_view::npos ||
           text.find("utf8") != std::string_view::npos;
  }
  return false;
}

bool is_set(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

// Ignores failures. If the terminal was closed, the next wait for a key notices it.
void put(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(STDOUT_FILENO, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

}  // namespace

std::unique_ptr<TopTerminal> TopTerminal::open() {
  std::unique_ptr<TopTerminal> terminal(new TopTerminal);
  if (tcgetattr(STDIN_FILENO, &terminal->before_) != 0 || isatty(STDOUT_FILENO) == 0)
    return nullptr;
  draw_history_in_utf8(is_utf8());
  terminal->has_colors_ = !is_set("NO_COLOR");
  struct sigaction action {};
  action.sa_handler = note_signal;
  for (const int signal : {SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGWINCH, SIGCONT})
    sigaction(signal, &action, nullptr);
  terminal->enter();
  return terminal;
}

// Switches to the terminal's second screen, so that the first screen is unchanged afterwards.
void TopTerminal::enter() {
  struct ::termios raw = before_;
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG);
  raw.c_cc[VMIN] = 1;
  raw.c_cc[VTIME] = 0;
  tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
  put("\x1b[?1049h\x1b[?25l\x1b[2J");
  is_in_ = true;
  shown_.clear();
}

void TopTerminal::leave() {
  if (!is_in_) return;
  is_in_ = false;
  put("\x1b[2J\x1b[H\x1b[?25h\x1b[?1049l");
  tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
}

TopTerminal::~TopTerminal() { leave(); }

void TopTerminal::draw(TopView& view) {
  struct ::winsize size {};
  const bool is_known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row != 0;
  const std::size_t rows = is_known ? size.ws_row : 24, columns = is_known ? size.ws_col : 80;
  std::string frame = "\x1b[H";
  const auto lines = view.lines(rows, columns);
  for (std::size_t i = 0; i < lines.size(); ++i)
    frame += (i == 0 ? "" : "\r\n") + drawn(lines[i], has_colors_);
  frame += "\x1b[J";
  if (frame == shown_) return;
  put(frame);
  shown_ = std::move(frame);
}

void TopTerminal::suspend() {
  leave();
  std::raise(SIGTSTP);
  enter();
}

TopKey TopTerminal::wait_for_key(int milliseconds) {
  const bool is_ready = has_input(milliseconds);
  if (g_end_signal != 0) return TopKey::quit;
  char c = 0;
  if (is_ready && read(STDIN_FILENO, &c, 1) == 1) {
    if (c == k_suspend) suspend();
    if (c != k_escape || !has_input(k_escape_delay_ms)) return key_of_letter(c);
    std::string rest;
    constexpr std::size_t k_longest = 8;
    while (rest.size() < k_longest && has_input(0) && read(STDIN_FILENO, &c, 1) == 1) {
      rest += c;
      // The first byte is '[' or 'O'. A letter or '~' ends the sequence.
      if (rest.size() > 1 && (c == '~' || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'))) break;
    }
    return key_of_sequence(rest);
  }
  // A closed terminal always reports input.
  pollfd input{STDIN_FILENO, POLLIN, 0};
  const bool is_gone =
      is_ready || (poll(&input, 1, 0) > 0 && (input.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0);
  return is_gone ? TopKey::quit : TopKey::none;
}

}  // namespace cube::cli
