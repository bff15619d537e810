"""CUBESHIM_PACKS: files in a pack are prefetched like other files: by a list, a listed directory,
or an announcement. CUBESHIM_COMMAND and CUBESHIM_LIBRARY name the build's files."""
import json
import os
import random
import subprocess
import sys
import time
import unittest

from pack_case import COMMAND, LIBRARY, PackCase, make_pack

COUNT = 200
READ_ALL = ("for path in sorted(os.listdir(O + '/a')): assert open(f'{P}/a/{path}', 'rb').read() "
            "== open(f'{O}/a/{path}', 'rb').read(), path\n")


class Prefetching(PackCase):
    def write_data(self):
        self.list = self.work / "list"
        (self.data / "a").mkdir(parents=True)
        for i in range(COUNT):
            (self.data / f"a/{i:03}").write_bytes(random.Random(i).randbytes(4 * i * i))
        (self.data / "trigger").write_text("go")
        self.environment = self.environment_of("packs-prefetch", "128M")
        del self.environment["LD_PRELOAD"]

    def fetched(self):
        done = subprocess.run([COMMAND, "stats", "--json"], env=self.environment,
                              capture_output=True, text=True)
        return sum(job["report"]["prefetch"]["fetched"]
                   for job in json.loads(done.stdout)["jobs"]) if done.returncode == 0 else 0

    def run_gated(self, before, files, after, **settings):
        """Runs `before`, then waits until this many files are prefetched, then runs `after`.
        Returns the report."""
        (self.work / "stats").unlink(missing_ok=True)
        code = (f"import os, sys\nP, O = {str(self.prefix)!r}, {str(self.data)!r}\n{before}\n"
                f"sys.stdin.readline()\n{after}")
        environment = {**self.environment, "LD_PRELOAD": LIBRARY, **settings}
        with subprocess.Popen([sys.executable, "-c", code], env=environment, stdin=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) as job:
            until = time.monotonic() + 60
            while (fetched :=
                   self.fetched()) < files and time.monotonic() < until and job.poll() is None:
                time.sleep(0.02)
            errors = job.communicate("\n", timeout=60)[1]
        self.assertEqual((job.returncode, errors), (0, ""))
        self.assertGreaterEqual(fetched, files)
        return json.loads((self.work / "stats").read_text())

    def check_early(self, lines, **settings):
        self.list.write_text("\n".join(lines) + "\n")
        report = self.run_gated("open(P + '/trigger').close()", COUNT, READ_ALL,
                                CUBESHIM_PREFETCH_LIST=str(self.list), **settings)
        self.assertEqual(
            (report["prefetch"]["fetched"], report["prefetch"]["early"], report["misses"]),
            (COUNT, COUNT, 1), report)
        self.assertEqual((report["origin"]["opens"], report["origin"]["stats"]), (0, 0))

    def test_files_of_a_list(self):
        for engine in ("auto", "uring", "threads"):
            with self.subTest(engine=engine):
                self.check_early([f"{self.prefix}/a/{i:03}" for i in range(COUNT)],
                                 CUBESHIM_IO_ENGINE=engine)

    def test_a_directory_of_a_list_and_relative_paths(self):
        self.check_early([str(self.prefix / "a")])
        self.check_early([f"- {self.prefix}/trigger", f"{self.prefix}/"])
        self.check_early([f"a/{i:03}" for i in range(COUNT)])

    def test_through_links(self):
        os.symlink("a", self.data / "to a")
        self.pack.unlink()
        make_pack(self.data, self.pack)
        self.list.write_text("".join(f"{self.prefix}/to a/{i:03}\n" for i in range(COUNT)))
        report = self.run_gated("open(P + '/trigger').close()", COUNT,
                                READ_ALL.replace("{P}/a", "{P}/to a"),
                                CUBESHIM_PREFETCH_LIST=str(self.list))
        self.assertEqual((report["prefetch"]["early"], report["misses"]), (COUNT, 1), report)

    def test_a_directory_that_the_program_has_listed(self):
        # The program opens the largest files. The files that are therefore fetched ahead are more,
        # but not larger.
        some = "for name in sorted(os.listdir(P + '/a'))[-20:]: open(f'{P}/a/{name}', 'rb').close()"
        # The pack does not fit completely, so no file is fetched only because it is next to an
        # opened file.
        report = self.run_gated(some, COUNT // 2, READ_ALL, CUBESHIM_RAM="14M")
        self.assertGreaterEqual(report["prefetch"]["early"], COUNT // 2, report)
        self.assertLess(report["misses"], COUNT // 2, report)

    def test_missing_and_damaged_files(self):
        whole = self.pack.read_bytes()
        at = whole.index(random.Random(150).randbytes(4 * 150 * 150))
        self.pack.write_bytes(whole[:at] + b"!" + whole[at + 1:] if whole[at:at +
                                                                          1] != b"!" else whole)
        self.list.write_text("".join(
            f"{self.prefix}/a/{name}\n" for name in ["none", *(f"{i:03}" for i in range(COUNT))]))
        after = ("for i in range(200):\n  try: open(f'{P}/a/{i:03}', 'rb').close()\n"
                 "  except OSError as e: assert i == 150 and e.errno == 5, i\n"
                 "  else: assert i != 150\n")
        environment = {
            **self.environment, "LD_PRELOAD": LIBRARY, "CUBESHIM_PREFETCH_LIST": str(self.list)
        }
        code = (f"import sys\nP = {str(self.prefix)!r}\nopen(P + '/trigger').close()\n"
                f"sys.stdin.readline()\n{after}")
        with subprocess.Popen([sys.executable, "-c", code], env=environment, stdin=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) as job:
            until = time.monotonic() + 60
            while self.fetched() < COUNT - 1 and time.monotonic() < until and job.poll() is None:
                time.sleep(0.02)
            errors = job.communicate("\n", timeout=60)[1]
        self.assertEqual(
            (job.returncode, errors.count("cubeshim: warn: a pack of CUBESHIM_PACKS is damaged")),
            (0, 1), errors)


if __name__ == "__main__":
    unittest.main()
