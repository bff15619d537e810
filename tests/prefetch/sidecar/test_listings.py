"""One process has listed a directory. Files of this directory are fetched ahead for other
processes, in proportion to the bytes that these have read."""
import json
import os
import time
import unittest

from support import Job, demand_misses, wait_until

COUNT = 300
SIZE = 20_000

# The gate is the first process's stdin. The children receive their orders through a pipe, or as
# workers of a pool.
PARENT = """
import multiprocessing, subprocess
names = []
def list_directory():
    names[:] = [entry.name for entry in os.scandir(D)]
def read_all_in_turn(read_some):
    # Before each further read, memory must hold 1.5 times as many files as have been read.
    done, sums = 0, {}
    while done < len(names):
        n = 20 if done == 0 else done
        part = names[done:done + n]
        sums |= dict(zip(part, read_some(part)))
        done += len(part)
        if done < len(names): need(min(done * 3 // 2, len(names) - 20 - 8))
    print(sorted(sums.items()))
"""

POOL = PARENT + """
def main():
    kind = sys.argv[3]
    with multiprocessing.get_context(kind).Pool(2) as pool:
        list_directory()
        read_all_in_turn(lambda part: pool.map(read, part, 1))
        pool.close()
        pool.join()
if __name__ == '__main__':
    main()
"""

# The worker is started by exec, before the directory is listed.
EARLIER = PARENT + """
if sys.argv[3:] == ['worker']:
    print(read('trigger'), flush=True)
    for line in sys.stdin: print(read(line.strip()), flush=True)
    sys.exit()
worker = subprocess.Popen([sys.executable, *sys.argv[:3], 'worker'], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True)
def ask(name):
    worker.stdin.write(name + '\\n')
    worker.stdin.flush()
    return int(worker.stdout.readline())
worker.stdout.readline()
list_directory()
read_all_in_turn(lambda part: [ask(name) for name in part])
worker.communicate()
"""


class Listings(Job):
    count = COUNT
    lagfs = ("--open-us=300", "--read-us=300")

    def setUp(self):
        super().setUp()
        del self.settings["CUBESHIM_PREFETCH_LIST"]
        self.env |= {"PYTHONWARNINGS": "ignore::UserWarning:multiprocessing.resource_tracker"}

    def make_source(self):
        source = self.dir / "source"
        for directory in [source, *(source / f"d{d}" for d in range(self.directories))]:
            directory.mkdir(parents=True)
            for n in range(self.count + 1):
                path = directory / ("trigger" if n == self.count else f"f{n}")
                path.write_bytes(bytes([n & 255]) * SIZE)
                os.utime(path, (1_600_000_000, 1_600_000_000))
        return source

    directories = 0

    def check_misses(self, done):
        # Allows the first twenty files, the trigger, and files that two workers open at the same
        # time as the sidecar.
        self.assertLessEqual(demand_misses(done.report), 60, str(done))
        self.assertGreaterEqual(done.report["prefetch"]["early"], COUNT - 60, str(done))

    def test_read_by_spawned_workers(self):
        for kind in ("spawn", "forkserver", "fork"):
            with self.subTest(kind=kind):
                self.check_misses(
                    self.check_gated([*self.script(POOL, first=self.READ_NOTHING), kind],
                                     misses=None))

    def test_read_by_a_process_that_was_there_before(self):
        self.check_misses(
            self.check_gated(self.script(EARLIER, first=self.READ_NOTHING), misses=None))


class Trees(Listings):
    """Uses ten directories of a hundred files."""
    count = 100
    directories = 10
    test_read_by_spawned_workers = test_read_by_a_process_that_was_there_before = None

    def opens(self):
        return json.loads(
            (self.mount.root / ".lagfs/counters.json").read_text())["open"]["data_files"]

    def settled(self, has_begun=lambda: True):
        """Waits until nothing has been fetched for a while. A sidecar without a limit would
        continue."""
        wait_until(has_begun, "begun to look at files")
        fetched, quiet_since = -1, time.monotonic()
        while time.monotonic() - quiet_since < 0.5:
            now = self.watch.fetched()
            if now != fetched:
                fetched, quiet_since = now, time.monotonic()
            time.sleep(0.02)

    def test_read_in_small_part(self):
        done = self.check_gated(
            self.script(
                """
import random
total = 0
for d in range(10):
    names = sorted(entry.name for entry in os.scandir(f'{D}/d{d}'))
    for name in random.Random(d).sample(names, 9):
        total += len(open(f'{D}/d{d}/{name}', 'rb').read())
act()
print(total)
""", first=self.READ_NOTHING), action=lambda: self.settled(lambda: self.watch.fetched() > 0),
            misses=None, hits=None)
        self.assertLessEqual(done.report["origin"]["bytes"], 3 * 90 * SIZE, str(done))
        self.assertGreater(done.report["prefetch"]["fetched"], 0, str(done))

    def test_listed_and_not_read(self):
        for first in ("", "read('trigger')\n"):
            done = self.check_gated(
                self.script(
                    f"""
{first}
print(sorted(name for _, _, names in os.walk(D) for name in names))
act()
""", first=self.READ_NOTHING), action=self.settled, misses=None, hits=None)
            self.assertEqual(done.report["prefetch"]["fetched"], 0, str(done))
            self.assertLessEqual(done.report["origin"]["bytes"], SIZE, str(done))

    def test_read_except_for_large_files(self):
        (self.source / "mixed").mkdir()
        for n in range(100):
            (self.source / "mixed" / f"f{n}").write_bytes(bytes(1000 if n < 10 else 200_000))
        command = self.script(
            """
os.listdir(f'{D}/mixed')
for n in range(10): print(read(f'mixed/f{n}'))
act()
""", first=self.READ_NOTHING)
        native = self.run_one(command, shim=False)
        before = self.opens()
        done = self.check_gated(command, native=native,
                                action=lambda: self.settled(lambda: self.opens() > before + 10),
                                misses=None, hits=None)
        self.assertLessEqual(done.report["origin"]["bytes"], 10 * 1000 + 64 * 1024, str(done))
        self.assertGreater(done.report["origin"]["opens"], 10, "some of them were looked at")
        self.assertLessEqual(done.report["origin"]["opens"], 10 + 64 + 10, str(done))

    def test_with_the_parent_alone_listed(self):
        done = self.check_gated(
            self.script(
                """
os.listdir(os.path.dirname(D))
for n in range(30): print(read(f'f{n}'))
act()
""", first=self.READ_NOTHING), action=self.settled, misses=None, hits=None)
        self.assertEqual(done.report["prefetch"]["fetched"], 0, str(done))


if __name__ == "__main__":
    unittest.main()
