"""A terminal for the tests of the command."""
import fcntl
import os
import pty
import re
import select
import struct
import termios
import time

import pyte


def contrast(one, two):
    """Returns the contrast of two colours such as "008700", from 1 to 21, as WCAG defines it."""
    def luminance(color):
        parts = [int(color[at:at + 2], 16) / 255 for at in (0, 2, 4)]
        red, green, blue = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055)**2.4
                            for p in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    light, dark = sorted((luminance(one), luminance(two)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


class Terminal:
    """A simulated terminal of this size, and the text that it shows."""
    def __init__(self, columns, rows):
        self.master, self.slave = pty.openpty()
        self.resize(columns, rows)

    def resize(self, columns, rows):
        self.screen = pyte.Screen(columns, rows)
        self.stream = pyte.ByteStream(self.screen)
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def close(self):
        for fd in (self.master, self.slave):
            os.close(fd)
        self.master = self.slave = None

    def text(self):
        return "\n".join(line.rstrip() for line in self.screen.display)

    # Waits until the screen has a match, and returns the first match.
    def until(self, pattern, is_full=True, patience=30):
        deadline = time.monotonic() + patience
        # The last row is drawn last, so when it has text, the screen is complete.
        while not (found := re.search(pattern, self.text(),
                                      re.M)) or (is_full and not self.screen.display[-1].strip()):
            ready, _, _ = select.select([self.master], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                raise AssertionError(f"{pattern!r} did not come:\n{self.text()}")
            self.stream.feed(os.read(self.master, 65536))
        return found

    def press(self, keys):
        os.write(self.master, keys.encode())

    def selected(self):
        """Returns the lines whose first character that is not a space is in reverse video."""
        return [
            line for row, line in enumerate(self.screen.display)
            if any(self.screen.buffer[row][column].reverse for column, c in enumerate(line)
                   if c != " ")
        ]
