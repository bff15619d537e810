"""File names and settings are untrusted bytes. The library reads them unchanged, but never writes
them unchanged to a terminal."""
import os
import unittest

from support import CONTENT, Case, write

NAMES = [
    b"new\nline", b"\x1b[2J\x1b]0;title\x07", b"%n%s%x%p", b"\xff" * 255, b"\xc2\x9b31m",
    b"\x9b31m", b"{}{0}", b"tab\there", b" ", b"\x7f\x08", b"\r", "\u540d\u524d.jpg".encode(),
    b"n" * 255, b"\\", b"'\"", b"-rf"
]


def is_text(line):
    """Returns True for text that no terminal interprets: UTF-8 without control characters."""
    text = line.decode()  # raises if it is not UTF-8
    return all(c.isprintable() or ord(c) >= 0xa0 for c in text)


class Names(Case):
    def test_are_read_as_they_are_and_are_in_no_report(self):
        for name in NAMES:
            write(os.fsencode(self.job.data) + b"/" + name, CONTENT + name)
        for form in ("text", "classic", "json"):
            done = self.job.python(
                f"""
import os
for turn in range(2):
  for name in {NAMES!r}:
    with open({os.fsencode(self.job.data)!r} + b'/' + name, 'rb') as file:
        assert file.read() == {CONTENT!r} + name, name
print({len(CONTENT)})
""", CUBESHIM_LOG="debug", CUBESHIM_ANNOUNCE="0", CUBESHIM_STATS_FORMAT=form)
            self.assert_well(done)
            with open(self.job.report, "rb") as file:
                report = file.read()
            os.unlink(self.job.report)
            self.assertTrue(all(is_text(line) for line in report.splitlines()))
            for name in NAMES:
                self.assertFalse(len(name) > 4 and name in report, name)
        self.assertEqual(self.lines(done), [])


class Lines(Case):
    """Lines about a wrong setting or a failure show the text without anything that a terminal would
    interpret."""
    def test_about_settings_are_text_and_bounded(self):
        hostile = [n.decode(errors="surrogateescape") for n in NAMES if n != b"-rf"
                  ] + ["a" * 100_000, "\x1b[31m" * 1000, "\u540d" * 1000]
        variables = ("CUBESHIM_MODE", "CUBESHIM_NAME", "CUBESHIM_RAM", "CUBESHIM_RAM_DIR",
                     "CUBESHIM_STATS_FORMAT")
        for value in hostile:
            with self.subTest(value[:20]):
                done = self.job.run(["/bin/echo", "main"], **dict.fromkeys(variables, value))
                self.assertEqual((done.returncode, done.stdout), (0, "main\n"))
                self.check(done, lines=len(variables))

    def test_about_paths_are_text_and_bounded(self):
        for name in NAMES + ["\u540d".encode() * 80, b"\x1b" * 200]:
            text = name.decode(errors="surrogateescape")
            with self.subTest(text[:20]):
                done = self.job.read(CUBESHIM_PREFIXES=f"{self.job.data}:/no/{text}",
                                     CUBESHIM_STATS=f"/no/{text}",
                                     **{f"CUBESHIM_{text}".replace("=", ""): "1"})
                self.check(done, lines=3)
                done = self.job.read(CUBESHIM_RAM_DIR=f"/no/{text}")
                self.check(done, lines=1)

    def check(self, done, lines):
        self.assertEqual(done.returncode, 0)
        for line in self.lines(done):
            self.assertTrue(line.startswith(b"cubeshim: "), line)
            self.assertTrue(is_text(line), line)
            self.assertLess(len(line), 1100)
        self.assertEqual(len(self.lines(done)), lines, done.stderr)


class Secrets(Case):
    def test_in_the_environment_are_not_printed(self):
        secret = "s3cret-0123456789"
        done = self.job.read(API_TOKEN=secret, CUBESHIM_TOKEN=secret, CUBESHIM_LOG="debug",
                             CUBESHIM_ANNOUNCE="0")
        self.assert_one_line(done, "CUBESHIM_TOKEN")
        with open(self.job.report, encoding="utf-8") as file:
            self.assertNotIn(secret, file.read())
        self.assertNotIn(secret.encode(), done.stderr)


if __name__ == "__main__":
    unittest.main()
