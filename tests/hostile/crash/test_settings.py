"""Each setting with values that it does not accept. The program must run as without the library, or
as with the default."""
import os
import pathlib
import re

import support
from support import Host, content, whole

ROOT = pathlib.Path(__file__).resolve().parents[3]
VARIABLES = re.findall(r'"(CUBESHIM_\w+)"', (ROOT / "cache/base/settings/config.def").read_text())
GARBAGE = [
    "x", "0", "-1", "1", "1" * 4000, "18446744073709551616", "8G8", "101%", "%p%s%n", "::::", "/",
    "../..", "/nonexistent/file", "/dev/null", "/dev/full", "/proc/self/mem", "/dev/shm",
    "\x01\x7f\x1b[2J", "\xff\xfe", "ttl:-1", "/" + "a" * 5000, "/a:" * 1000
]


class Garbage(support.FaultCase):
    def test_in_every_setting(self):
        self.assertGreater(len(VARIABLES), 10)
        self.region_may_stay = True  # RAM_KEEP=1 is among them
        origin = self.temporary()
        data = content(1, 50_000)
        (origin / "file").write_bytes(data)
        cwd = self.temporary()
        for variable in [*VARIABLES, "CUBESHIM_JOB", "CUBESHIM_NO_SUCH_SETTING"]:
            for value in GARBAGE:
                with self.subTest(variable=variable, value=value[:50]):
                    settings = self.settings(origin) | {variable: value}
                    if variable == "CUBESHIM_STRICT" and value == "1":
                        continue  # that is a valid value
                    host = Host(self, settings, cwd=cwd)
                    for _ in range(2):
                        self.assertEqual(host.ask(f"read {origin}/file"), whole(data))
                    host.end()
                    self.tried()
        for left in pathlib.Path("/dev/shm").glob(f"cubeshim-{support.UID}-*"):
            if left.name[len(f"cubeshim-{support.UID}-"):] in GARBAGE:
                left.unlink()

    def test_report_to_an_unwritable_place(self):
        origin = self.temporary()
        (origin / "file").write_bytes(b"x")
        directory = self.temporary()
        os.mkfifo(directory / "fifo")
        os.mkdir(directory / "directory")
        os.symlink(directory / "target", directory / "link")
        (directory / "readonly").write_bytes(b"")
        for name in ("fifo", "directory", "link", "absent/file", "readonly"):
            for format_name in ("text", "classic", "json"):
                with self.subTest(name=name, format=format_name):
                    host = Host(
                        self, self.settings(origin, STATS=directory / name,
                                            STATS_FORMAT=format_name))
                    self.assertEqual(host.ask(f"read {origin}/file"), whole(b"x"))
                    host.end()
                    self.tried()
        self.assertFalse((directory / "target").exists())

    def test_report_beyond_the_limit_of_file_sizes(self):
        origin = self.temporary()
        (origin / "file").write_bytes(b"x")
        directory = self.temporary()
        for limit in (0, 10):
            host = Host(self, self.settings(origin, STATS=directory / "report"),
                        command=["prlimit", f"--fsize={limit}"])
            self.assertEqual(host.ask(f"read {origin}/file"), whole(b"x"))
            host.end()
            self.tried()


if __name__ == "__main__":
    support.main(__name__)
