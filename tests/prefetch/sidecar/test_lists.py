"""Lists with valid and invalid contents: the listed files are prefetched, and no fault of a list
harms the job."""
import json
import os
import random
import unittest

from support import COUNT, Job, demand_misses

READ_GATED = "need(COUNT)\nread_all()\n"


class Served(Job):
    def check_all_early(self, misses=1, fetched=COUNT, duplicate=0, **options):
        done = self.check_gated(self.script(f"need({fetched})\nread_all()\n"), misses=misses,
                                **options)
        found = done.report["prefetch"]
        self.assertEqual(
            {key: found[key] for key in ("fetched", "early", "late", "wasted", "unread")},
            {"fetched": fetched, "early": fetched, "late": 0, "wasted": 0, "unread": 0}, str(done))
        self.assertLessEqual(found["duplicate"], duplicate, str(done))
        return done

    def test_by_each_engine(self):
        for engine in ("auto", "uring", "threads"):
            for depth in (1, 64, 256):
                with self.subTest(engine=engine, depth=depth):
                    self.settings |= {
                        "CUBESHIM_IO_ENGINE": engine, "CUBESHIM_PREFETCH_DEPTH": str(depth)
                    }
                    done = self.check_all_early()
                    self.assertEqual(demand_misses(done.report), 1,
                                     "the file that is not in the list")

    def test_each_file_is_asked_for_once(self):
        native = self.run_one(self.script(READ_GATED), shim=False)
        before = self.opens()
        self.check_all_early(native=native)
        self.assertEqual(self.opens() - before, COUNT + 1)

    def opens(self):
        return json.loads(
            (self.mount.root / ".lagfs/counters.json").read_text())["open"]["data_files"]

    def test_forms(self):
        names = [f"f{n}" for n in range(COUNT)]
        absolute = [f"{self.data}/{name}" for name in names]
        forms = {
            "NUL-separated": (absolute, "\0"), "relative to the prefix": (names, "\n"),
            "a directory, the trigger left out": ([f"- {self.data}/trigger", self.data], "\n"),
            "comments, empty lines, dots and slashes": (
                ["# all of them", ""] + [f"{self.data}//.//x/../{name}" for name in names] +
                ["", "# end"], "\n"), "lines ended as on Windows": (absolute, "\r\n"),
            "each thrice": (absolute * 3, "\n"),
        }
        for form, (lines, separator) in forms.items():
            with self.subTest(form):
                self.write_list(lines, separator)
                # If flights collide, a path that is listed twice can be requested again while it is
                # in flight.
                self.check_all_early(duplicate=5 if len(lines) > 2 * COUNT else 0)

    def test_without_an_end_of_line(self):
        self.list.write_bytes(self.list.read_bytes().rstrip(b"\n"))
        self.check_all_early()

    def test_exclusions(self):
        self.write_list([f"- {self.data}/f{n}" for n in range(5)] +
                        [f"{self.data}/f{n}" for n in range(COUNT)])
        self.check_all_early(misses=1 + 5, fetched=COUNT - 5)

    def test_a_list_under_the_prefix(self):
        self.list = self.source / "list"
        self.write_list()
        self.settings["CUBESHIM_PREFETCH_LIST"] = f"{self.data}/list"
        self.check_all_early()

    def test_names_of_all_kinds(self):
        odd = [
            b"with space ", b"\xff\xfe", b"quote\"'", b"new\nline", "ümläut".encode(), b"-dash",
            b"#hash", b"n" * 255
        ]
        for name in odd:
            with open(os.path.join(os.fsencode(self.source), name), "wb") as file:
                file.write(name)
        at = os.fsencode(self.data)
        self.list.write_bytes(b"".join(os.path.join(at, name) + b"\0" for name in odd))
        script = self.script(f"""
need({len(odd)})
for name in {odd!r}:
    with open(os.path.join(os.fsencode(D), name), 'rb') as f: assert f.read() == name
""")
        self.check_gated(script)


class Refused(Job):
    """The job still reads, and the library logs one line."""
    def check_bad(self, says, command=None, **options):
        done = self.check(command or self.script("read_all()\n"), says=says, hits=None, tries=20,
                          **options)
        self.assertEqual(done.report["prefetch"]["fetched"], 0, str(done))
        self.assertEqual(demand_misses(done.report), COUNT + 1, str(done))

    def test_missing(self):
        self.settings["CUBESHIM_PREFETCH_LIST"] = str(self.dir / "nowhere")
        self.check_bad("nowhere.*No such file")

    def test_list_that_is_not_a_regular_file(self):
        os.mkfifo(self.dir / "fifo")
        for path in (self.dir, self.dir / "fifo", "/dev/zero", "/dev/null"):
            with self.subTest(path):
                self.settings["CUBESHIM_PREFETCH_LIST"] = str(path)
                self.check_bad(str(path))

    def test_empty(self):
        self.list.write_bytes(b"")
        self.check_bad(None)

    def test_unreadable(self):
        self.copy_for_others()
        self.list.chmod(0o600)
        plain, command = self.nobodys(*self.script("read_all()\n"))
        native = self.run_one(plain, shim=False, preload=[])
        self.check_bad("list.*Permission denied", command, native=native, preload=[])

    def test_garbage(self):
        numbers = random.Random(1)
        kinds = {
            "bytes": numbers.randbytes(300_000), "one line": b"x" * 1_000_000,
            "lines": b"\n" * 100_000,
            "slashes": b"/" * 5000 + b"\n" + b"../" * 3000 + b"etc/passwd\n",
            "NULs": b"\0" * 100_000, "letters": bytes(numbers.choices(b"abc/.-# \n", k=200_000))
        }
        for kind, data in kinds.items():
            with self.subTest(kind):
                self.list.write_bytes(data)
                done = self.check_reads_alike()
                self.assertEqual(done.report["prefetch"]["fetched"], 0, str(done))

    def check_reads_alike(self, **options):
        """There is at most one line for each reason, and no line twice."""
        command = self.script(READ_GATED)
        plain = self.run_one(command, shim=False)
        done = self.run_one(self.script("read_all()\n"), shim=True, **options)
        self.assertEqual((done.status, done.out, done.theirs), (0, plain.out, plain.err), str(done))
        self.assertLessEqual(len(done.ours), 4, str(done))
        self.assertEqual(len(set(done.ours)), len(done.ours), str(done))
        for line in done.ours:
            self.assertIn("list", line)
            self.assertLess(len(line), 1000)
        return done

    def test_paths_that_lead_nowhere(self):
        # If a list has valid and invalid entries, the valid entries are fetched. Each reason for
        # which entries are left out is reported one time.
        good = [f"{self.data}/f{n}" for n in range(COUNT)]
        bad = [
            "/etc/passwd", "/nowhere", f"{self.data}/missing", f"{self.data}/../outside",
            f"{self.data}/f0/below", f"{self.data}/{'x' * 300}", f"{self.data}" + "/x" * 4000
        ]
        os.mkfifo(self.source / "fifo")
        os.symlink("nowhere", self.source / "dangling")
        os.symlink("loop", self.source / "loop")
        bad += [f"{self.data}/{name}" for name in ("fifo", "dangling", "loop")]
        self.write_list([path for n, path in enumerate(good) for path in (path, bad[n % len(bad)])])
        command = self.script(READ_GATED)
        native = self.run_one(command, shim=False)
        done = self.check_gated(command, native=native, quiet=False)
        text = "\n".join(done.ours)
        self.assertRegex(text, "outside")
        self.assertRegex(text, "missing")
        self.assertEqual(done.report["prefetch"]["fetched"], COUNT, str(done))
        self.assertLessEqual(len(done.ours), 5, str(done))

    def test_a_list_that_changes_while_it_is_read(self):
        big = "".join(f"{self.data}/missing{n}\n" for n in range(200_000)).encode()
        for change in (lambda: os.truncate(self.list, 0), lambda: self.list.write_bytes(big[:5000]),
                       self.list.unlink):
            with self.subTest(change):
                self.list.write_bytes(self.write_list().read_bytes() + big)
                done = self.check_gated(self.script("need(COUNT)\nact()\nread_all()\n"),
                                        action=change, quiet=False)
                # The three reasons are a changed list, a missing file, and a last line that was
                # cut.
                self.assertLessEqual(len(done.ours), 3, str(done))


class Off(Job):
    SCRIPT = """
import threading
os.listdir(D)
read_all()
print(len(os.listdir('/proc/self/task')), threading.active_count())
"""

    def test_nothing_runs_when_it_is_switched_off(self):
        self.settings["CUBESHIM_PREFETCH"] = "0"
        done = self.check(self.script(self.SCRIPT), hits=None)
        self.assertEqual(done.report["prefetch"], dict.fromkeys(done.report["prefetch"], 0),
                         str(done))
        self.assertEqual(demand_misses(done.report), COUNT + 1, str(done))

    def test_nothing_runs_where_nothing_is_served(self):
        for setting, value in (("CUBESHIM_MODE", "off"), ("CUBESHIM_PREFIXES", "/usr/share")):
            with self.subTest(setting):
                before = self.settings
                self.settings = before | {setting: value}
                self.check(self.script(self.SCRIPT), hits=None)
                self.settings = before

    def test_wrong_values(self):
        for variable, values in (("DEPTH", ("0", "257", "-1", "many")), ("", ("2", "yes"))):
            for value in values:
                name = "CUBESHIM_PREFETCH" + (f"_{variable}" if variable else "")
                self.check_wrong(name, value)
        for value in ("aio", "URING"):
            self.check_wrong("CUBESHIM_IO_ENGINE", value)
        for value in ("101%", "-1", "much", "0%"):
            self.check_wrong("CUBESHIM_RING", value)

    def check_wrong(self, name, value):
        with self.subTest(name, value=value):
            before = self.settings
            self.settings = before | {name: value}
            self.check(self.script("read_all()\n"),
                       says=f'{name}="{value}" is not usable: it takes ', hits=None)
            self.settings = before


if __name__ == "__main__":
    unittest.main()
