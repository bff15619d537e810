"""`cubeshim top` on a terminal: pages, keys and sizes, as a terminal shows them."""
import fcntl
import os
import re
import select
import subprocess
import termios
import unittest

from cli_case import Case
from cli_terminal import Terminal
from test_gateway import GatewayCase

DOWN, LEFT, ESCAPE = "\x1b[B", "\x1b[D", "\x1b"


class TopCase(Case):
    def job(self, opens=0, name=None):
        """Starts a job that has opened its file this many times."""
        loop = f"for ((i = 0; i < {opens}; ++i)); do exec 4<{self.file}; done; " if opens else ""
        job = self.start("run", "-p", self.data, "--name", name or self.name, "--ram", "32M",
                         "--prefetch", "0", "--stats", "off", "bash", "-c",
                         f"exec 3<{self.file}; {loop}echo $$; read line", stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE)
        # The job's pid is that of `cubeshim run`. Its only process with a cache is the program.
        job.program = int(job.stdout.readline())
        return job

    def top(self, columns=80, rows=24, term="linux", controls=True, **more):
        terminal = Terminal(columns, rows)
        self.addCleanup(lambda: terminal.master and terminal.close())
        before = termios.tcgetattr(terminal.slave)
        environment = {k: v for k, v in os.environ.items() if not k.startswith("CUBESHIM_")
                      } | {"TERM": term, "LC_ALL": "C"} | more
        for variable in ("LINES", "COLUMNS"):
            environment.pop(variable, None)
        terminal.child = subprocess.Popen(
            [os.environ["CUBESHIM_COMMAND"], "top", "--name", self.name, "--interval", "1"],
            env=environment, stdin=terminal.slave, stdout=terminal.slave, stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=(lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)) if controls else None)
        self.addCleanup(terminal.child.wait)
        self.addCleanup(terminal.child.kill)
        terminal.settings = lambda: (before, termios.tcgetattr(terminal.slave))
        return terminal


class Screen(TopCase):
    def test_the_first_page_has_caches_and_jobs(self):
        job = self.job()
        top = self.top()
        top.until(rf"^ +{job.pid} ")
        lines = top.text().split("\n")
        self.assertEqual(lines[0], "cubeshim top: 1 cache, 1 job; every 1 s")
        self.assertRegex(lines[1], rf"^{self.name[:20]}.*used by 1 record, 1 process$")
        self.assertRegex(lines[2], r"^memory \[\|* +52\.3K/\d+\.0M\]$")
        self.assertRegex(lines[3], r"^hits   \[ +no opens\]$")
        self.assertRegex(lines[4], r"^origin \[ +not asked\]$")
        self.assertEqual(
            lines[5], "     PID  opens/s   hits misses/s served/s origin/s ahead/s COMMAND")
        row, = top.selected()
        # The job's first process is `cubeshim run`; the row names its program.
        self.assertRegex(row, rf"^ *{job.pid} .* bash -c exec 3<")
        self.assertEqual(lines[23], "q end  Enter look into  Tab columns  ? help  s sort: opens/s")
        top.press("s")
        top.until(r"s sort: hits$")
        top.press("SS")
        top.until(r"s sort: miss p99$")
        top.press("r")
        top.until(r"s sort: miss p99, least first$")
        top.press("\t")
        top.until(r"^   LARGE   hits/s")
        top.press("\t")
        top.until(r"^METADATA  lists/s")
        top.press("?")
        top.until(r"^cubeshim top: keys$")
        top.press(ESCAPE)
        top.until(r"^cubeshim top: 1 cache")
        top.press("q")
        self.assertEqual(top.child.wait(30), 0)
        before, after = top.settings()
        self.assertEqual(after, before, "the terminal is as it was")

    def into(self, job):
        """Opens the page of that job."""
        top = self.top()
        top.until(rf"^ +{job.pid} ")
        top.press("\n")
        top.until(rf"^job {job.pid}: ")
        return top

    def test_enter_looks_into_a_job_and_a_process(self):
        job = self.job(opens=99)
        top = self.into(job)
        top.until(rf"^job {job.pid}: .*cubeshim run -p ")
        top.until(r"^served: 100 file opens, .*: 99 from memory, 1 from the mount\n"
                  r"not served: nothing\ntime saved: \S.*$")
        top.until(rf"^ +{job.program} ")
        top.press("\n")
        top.until(rf"^process {job.program}: bash -c exec 3<")
        top.until(r"^ +a second +so far\nopens +0 +100\nhits\.ram +0 +99$")
        top.press(LEFT)
        top.until(rf"^job {job.pid}: ")
        top.press(ESCAPE)
        top.until(r"^cubeshim top: ")

    def test_small_terminal_shows_the_columns_that_fit(self):
        job = self.job(opens=9)
        top = self.top(40, 10)
        top.until(rf"^ +{job.pid} ")
        lines = top.text().split("\n")
        self.assertEqual(lines[2], "     PID  opens/s   hits misses/s")
        self.assertTrue(lines[9].startswith("q end  Enter"))
        top.press("\n")
        top.until(rf"^job {job.pid}: ")
        top.until(rf"^ +{job.program} ")
        top.until(r"^and \d+ lines more$")
        top.press("\n")
        top.until(r"^opens +0 +10$(.|\n)*^q end  Esc")
        last = top.text().split("\n")[8]
        top.press(DOWN)
        top.until(rf"\n{re.escape(last)}\n.*\n(q end)")

    def test_the_page_of_keys_breaks_lines_between_words(self):
        for columns in (80, 60):
            top = self.top(columns)
            top.until(r"^waiting for a job")
            top.press("?")
            top.until(r"cost\s+each\s+hit\s+some\s+time\.$")
            self.assertIn("99 of 100 opens take less than p99", " ".join(top.text().split()))
            top.press("q")
            self.assertEqual(top.child.wait(30), 0)

    def test_resize_redraws_the_screen(self):
        job = self.job()
        top = self.top()
        top.until(rf"^ +{job.pid} ")
        for columns, rows in ((40, 10), (1, 1), (200, 50), (12, 3), (80, 24)):
            top.resize(columns, rows)
            if columns >= 40:
                top.until(rf"^ +{job.pid} ")
                self.assertEqual(top.text().split("\n")[rows - 1][:5], "q end")
            else:
                top.until(r"^[cq]")
        top.press("q")
        self.assertEqual(top.child.wait(30), 0)

    def test_the_keys_choose_among_jobs(self):
        one, two = self.job(), self.job()
        top = self.top()
        top.until(r"1 cache, 2 jobs")
        top.until(rf"^ +{two.pid} ")
        self.assertEqual(len(top.selected()), 1)
        first = int(top.selected()[0].split()[0])
        self.assertIn(first, (one.pid, two.pid))
        second = one.pid + two.pid - first
        top.press(DOWN * 3)
        top.until(rf"^ +{second} ")
        while [line.split()[:1] for line in top.selected()] != [[str(second)]]:
            top.stream.feed(os.read(top.master, 65536))
        top.press("\n")
        top.until(rf"^job {second}: ")
        top.press(ESCAPE)
        top.until(r"^cubeshim top")
        self.assertEqual([int(line.split()[0]) for line in top.selected()], [second])

    def test_jobs_are_sorted(self):
        idle = self.job()
        busy = self.start("run", "-p", self.data, "--name", self.name, "--ram", "32M", "--prefetch",
                          "0", "--stats", "off", "bash", "-c",
                          f"while :; do exec 3<{self.file}; done")
        top = self.top()
        top.until(rf"COMMAND\n +{busy.pid} .*\n +{idle.pid} ")
        top.press("r")
        top.until(rf"COMMAND\n +{idle.pid} .*\n +{busy.pid} ")

    def test_a_job_that_ends_meanwhile_keeps_its_page(self):
        job = self.job(opens=9)
        top = self.into(job)
        job.communicate(b"end\n", timeout=300)
        top.until(rf"^job {job.pid} has ended: .*cubeshim run -p ")
        top.until(r"^served: 10 file opens, ")
        top.press("\n\n" + ESCAPE)
        top.until(rf"^waiting for a job \(the cache named {self.name[:20]}")
        top.until(rf"^job {job.pid} has ended: 10 opens, 90\.0% hits, 1 misses, ")
        job = self.job()
        top.until(rf"^ +{job.pid} ")

    def test_last_three_ended_jobs_are_shown(self):
        *jobs, last = [self.job() for _ in range(6)]
        top = self.top()
        for job in (*jobs, last):
            top.until(rf"^ +{job.pid} ")
        for job in jobs:
            job.communicate(b"end\n", timeout=300)
        top.until(r"1 cache, 1 job;")
        self.assertEqual(top.text().count(" has ended: "), 3, top.text())

    def test_top_ends_when_its_terminal_closes(self):
        self.job()
        # The terminal is not top's controlling terminal, so no signal reports its end.
        top = self.top(controls=False)
        top.until(r"^cubeshim top")
        top.close()
        self.assertEqual(top.child.wait(30), 0)

    def test_gauges_have_a_history_and_colours(self):
        self.start("run", "-p", self.data, "--name", self.name, "--ram", "32M", "--prefetch", "0",
                   "--stats", "off", "bash", "-c", f"while :; do exec 3<{self.file}; done")
        for no_color, color in ((None, "008700"), ("1", "default")):
            top = self.top(term="no-such-terminal", **({"NO_COLOR": no_color} if no_color else {}))
            top.until(r"^hits   \[\|+100%\] +#{2}")
            row = next(row for row, line in enumerate(top.screen.display)
                       if line.startswith("hits"))
            self.assertEqual(top.screen.buffer[row][10].fg, color)

    def test_a_terminal_that_cannot_move_its_cursor_has_lines(self):
        job = self.job()
        for term in ("dumb", ""):
            top = self.top(term=term)
            seen = b""
            while seen.count(b"%d" % job.pid) < 2:
                self.assertTrue(select.select([top.master], [], [], 30)[0], seen)
                seen += os.read(top.master, 65536)
            self.assertNotIn(b"\x1b", seen)
            self.assertRegex(seen.decode(), rf"(?m)^ +{job.pid} ")


class GatewayScreen(TopCase, GatewayCase):
    def test_pages_of_a_cache_with_buckets_show_the_gateway(self):
        job = self.start_job(
            "import os, sys\n"
            "for top, _, names in os.walk(sys.argv[1]):\n"
            "    for name in names: open(os.path.join(top, name), 'rb').read()\n"
            "print(flush=True); sys.stdin.read()", self.mount, CUBESHIM_PREFETCH="0")
        job.stdout.readline()
        top = self.top()
        line = r"gateway: 0 of \d+ requests in flight, 0/s, 0\.0 ms, 0/s, 0 retries/s$"
        top.until(rf"^  {line}")
        top.press("\n")
        top.until(rf"^job {job.pid}: ")
        top.until(rf"^{line}")
        top.until(r"^served: 41 file opens, .*: 41 from the object store$")
        top.until(r"^object store: 41 GETs brought .*; 5 LISTs$")

    def test_requests_in_flight_are_seen_on_the_screen(self):
        # Makes the store send half a body and wait.
        self.store.fault = [None, "stalled"]
        job = self.start_job("import sys; open(sys.argv[1] + '/0/file 4+ü.jpg').read()",
                             self.mount, CUBESHIM_S3_TIMEOUT="60")
        for columns in (80, 40):
            top = self.top(columns)
            top.until(r"gateway: 1 of \d+ requests in flight")
            top.until(r"retries/s$")
            top.press("q")
            self.assertEqual(top.child.wait(30), 0)
        job.kill()


if __name__ == "__main__":
    unittest.main()
