"""Lines that a user sees only on a terminal."""
import json
import os
import subprocess
import sys
import unittest

from cli_case import COMMAND, CONTENT, Case, obey_modes
from cli_terminal import Terminal, contrast

# Reads all files of the directory repeatedly until the time is over.
READS = """import glob, sys, time
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    for path in sorted(glob.glob(sys.argv[1] + '/*')):
        open(path, 'rb').read()
"""
LONG, SHORT = "60", "1.5"


class OnTerminal(Case):
    def start_on_terminal(self, *words, env=None, columns=200):
        """Starts a program whose stderr is a terminal."""
        terminal = Terminal(columns, 24)
        self.addCleanup(lambda: terminal.master and terminal.close())
        clean = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith("CUBESHIM_") and k not in ("LD_PRELOAD", "NO_COLOR")
        }
        child = subprocess.Popen(list(map(str, words)), stdin=subprocess.DEVNULL,
                                 stdout=subprocess.DEVNULL, stderr=terminal.slave,
                                 env=clean | {"TERM": "xterm"} | (env or {}))
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        terminal.child = child
        return terminal


class Progress(OnTerminal):
    """The line about a job while its cache fills. It is longer on a busy machine."""
    LINE = (r"^cubeshim: \S+ \S+: \d+ opens, \d+ % from the cache; 2\.\d MiB cached "
            r"\(\d+ % of the room\); mount (?:[^;]*;){1,2}\s+almost\s+nothing\s+new\s+is\s+"
            r"cached:\s+this\s+is\s+the\s+last\s+line$")

    def setUp(self):
        super().setUp()
        for i in range(40):
            (self.data / f"{i}").write_bytes(CONTENT)
        # With a list, the library starts its thread immediately.
        self.list = self.data.parent / "list"
        self.list.write_text(f"{self.data}\n")

    def library_on(self):
        return {
            "CUBESHIM_PREFIXES": str(self.data), "CUBESHIM_NAME": self.name, "CUBESHIM_RAM": "32M",
            "CUBESHIM_PROGRESS": "1", "LD_PRELOAD": os.environ["CUBESHIM_LIBRARY"],
            "CUBESHIM_PREFETCH_LIST": str(self.list)
        }

    def test_the_first_process_of_a_job_shows_it(self):
        terminal = self.start_on_terminal(sys.executable, "-c", READS, self.data, LONG,
                                          env=self.library_on())
        terminal.until(self.LINE, is_full=False)

    def test_the_command_shows_it_for_a_program_that_reads_nothing_itself(self):
        terminal = self.start_on_terminal(
            COMMAND, "run", "-p", self.data, "--name", self.name, "--ram", "32M", "sh", "-c",
            f"{sys.executable} -c \"$0\" {self.data} {LONG}; :", READS,
            env={"CUBESHIM_PROGRESS": "1"})
        terminal.until(self.LINE, is_full=False)

    def test_no_pipe_gets_it(self):
        words = [sys.executable, "-c", READS, str(self.data), SHORT]
        by_library = subprocess.Popen(words, env=os.environ | self.library_on(),
                                      stderr=subprocess.PIPE)
        by_command = self.run_program(*words, options=["--progress", "1"])
        for told in (by_library.communicate(timeout=300)[1], by_command.stderr):
            self.assertIn(b"cubeshim: served: ", told)
            self.assertNotIn(b" % from the cache; ", told)


class Report(OnTerminal):
    def test_no_row_ends_within_a_word(self):
        for i in range(3):
            (self.data / f"{i}").write_bytes(CONTENT)
        for columns in (60, 80):
            terminal = self.start_on_terminal(
                COMMAND, "run", "-p", self.data, "--name", self.name, "--ram", "32M", "--",
                sys.executable, "-c", READS, self.data, "0.2", columns=columns)
            terminal.until("^cubeshim: time saved: ", is_full=False)
            terminal.child.wait(60)
            os.write(terminal.slave, b"end of it")
            terminal.until("^end of it$", is_full=False)
            rows = terminal.text().split("end of it")[0].splitlines()
            self.assertGreaterEqual(len(rows), 3, rows)
            for row in rows:
                self.assertRegex(row, r"^(cubeshim: | {10})\S")


class Lines(OnTerminal):
    def on_terminal(self, columns, *words):
        """Returns the rows that the command writes to a terminal, and its output to a pipe."""
        terminal = Terminal(columns, 60)
        self.addCleanup(terminal.close)
        clean = {k: v for k, v in os.environ.items() if not k.startswith("CUBESHIM_")}
        subprocess.run([COMMAND, *words], stdin=subprocess.DEVNULL, stdout=terminal.slave,
                       stderr=subprocess.DEVNULL, env=clean, timeout=300)
        # The last row is printed last.
        os.write(terminal.slave, b"end of it")
        terminal.until("^end of it$", is_full=False)
        rows = terminal.text().split("end of it")[0].splitlines()
        return rows, self.command(*words).stdout.decode()

    def test_a_narrow_terminal_breaks_them_between_words(self):
        words = ("doctor", "--prefix", "/no/such/directory", "--ram", "900G")
        for columns in (40, 80):
            rows, whole = self.on_terminal(columns, *words)
            lines = whole.splitlines()
            self.assertGreater(len(rows), len(lines))
            # Sizes differ from run to run, but most lines have the same words.
            text = " ".join(" ".join(rows).split())
            same = [line for line in lines if " ".join(line.split()) in text]
            self.assertGreater(sum(len(line) > columns for line in same), 0, rows)
            for row in rows:
                self.assertRegex(row, r"^((ok|warn|fail) {2,4}|      )\S")

    def test_a_narrow_terminal_fills_the_paragraphs_of_a_document(self):
        for columns in (64, 80):
            rows, whole = self.on_terminal(columns, "docs", "recipes/index")
            words, shown = whole.split(), " ".join(rows).split()
            self.assertGreater(len(shown), 100)
            self.assertEqual(shown, words[-len(shown):])
            filled = [len(row) for row in rows if row and row[0] not in "#|`"]
            self.assertLessEqual(max(filled), columns)

    def test_complaints_break_between_words(self):
        terminal = self.start_on_terminal(COMMAND, "run", "-p", "/no/such/directory/at/all", "true",
                                          columns=60)
        terminal.until("CUBESHIM_PREFIXES", is_full=False)
        self.assertRegex(terminal.text(), r"^cubeshim: \S.*\n {10}\S")

    def test_wide_terminal_shows_the_same_lines_as_a_pipe(self):
        rows, whole = self.on_terminal(300, "doctor", "--prefix", "/no/such/directory")
        self.assertEqual([row.split()[0] for row in rows],
                         [line.split()[0] for line in whole.splitlines()])


class Names(Case):
    """A name of a file can hold a sequence that controls the terminal."""
    NAME = "\x1b[2J\nx"

    def assert_shown(self, *words, status=1, said=b"?[2J?x"):
        done = self.command(*words, preexec_fn=obey_modes)
        self.assertEqual(done.returncode, status, done)
        self.assertNotIn(b"\x1b", done.stdout + done.stderr)
        self.assertIn(said, done.stdout + done.stderr)
        return done

    def test_no_report_controls_the_terminal(self):
        (self.data / self.NAME).write_bytes(CONTENT)
        (self.data / self.NAME).chmod(0)
        directory = self.data / f"d{self.NAME}"
        directory.mkdir(mode=0)
        self.addCleanup(directory.chmod, 0o700)
        warmup = ["warmup", "-p", self.data, "--name", self.name, "--ram", "32M", "--ram-keep", "1"]
        self.addCleanup(self.region.unlink, missing_ok=True)
        self.assert_shown(*warmup, self.data)
        self.assert_shown(*warmup, "--metadata-only", self.data)
        done = self.assert_shown(*warmup, "--json", self.data, said=b"")
        first = [row["first"] for row in json.loads(done.stdout)["reasons"]]
        self.assertTrue(any(self.NAME in name for name in first), first)
        self.assert_shown("bench", self.data, status=0)

    def test_no_row_of_a_pack_controls_the_terminal(self):
        names = self.data.parent / "list"
        names.write_text("f\nno\x1b[2J\n")
        pack = self.data.parent / "p.cube"
        self.assert_shown("pack", "--list", names, self.data, pack, said=b"no?[2J")
        (self.data / self.NAME).write_bytes(CONTENT)
        (self.data / self.NAME).chmod(0)
        self.assert_shown("pack", self.data, pack)


class Colors(OnTerminal):
    def test_all_are_readable_on_white_and_on_black(self):
        terminal = Terminal(200, 50)
        self.addCleanup(terminal.close)
        # The results of the checks are an "ok", a "warn" and a "fail".
        done = self.command("doctor", "--color", "always", "--prefix", "/no/such", "--cluster",
                            "memcached://127.0.0.1:1", "--disk-dir", "/no/such")
        terminal.stream.feed(done.stdout.replace(b"\n", b"\r\n"))
        seen = {cell.fg for row in terminal.screen.buffer.values() for cell in row.values()}
        self.assertGreaterEqual(len(seen), 4, done.stdout)
        for color in seen - {"default"}:
            for ground in ("ffffff", "000000"):
                self.assertGreater(contrast(color, ground), 3.8, (color, ground))

    def test_the_option_decides_and_a_pipe_has_none(self):
        for option, has_colors in (("auto", False), ("never", False), ("always", True)):
            done = self.command("doctor", "--color", option)
            self.assertEqual(b"\x1b[38;5;28mok" in done.stdout, has_colors, done.stdout)
            self.assertEqual(b"\x1b" in done.stdout, has_colors)

    def test_a_terminal_has_them_unless_no_color_is_set(self):
        for no_color, color in (("", "008700"), ("1", "default")):
            terminal = Terminal(200, 24)
            self.addCleanup(terminal.close)
            self.keep_a_region()
            subprocess.run([COMMAND, "clear", "--name", self.name], stdin=subprocess.DEVNULL,
                           stdout=terminal.slave, check=True, timeout=300,
                           env=os.environ | {"TERM": "xterm", "NO_COLOR": no_color})
            terminal.until(r"^removed /dev/shm/", is_full=False)
            self.assertEqual(terminal.screen.buffer[0][0].fg, color)


if __name__ == "__main__":
    unittest.main()
