"""cubeshim gateway: jobs read a bucket of the test's own store through the gateway.
CUBESHIM_COMMAND and CUBESHIM_LIBRARY name the build's files."""
import hashlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path

from bucket_store import DEADLINE_S, SECRET, Store, end_gateways, gateways_of
from cli_case import COMMAND, Case

LIBRARY = os.environ["CUBESHIM_LIBRARY"]
PYTHON = "/usr/bin/python3"
NOBODY = 65534
READ_ALL = """
import hashlib, json, os, sys
found = {}
for top, _, names in os.walk(sys.argv[1]):
    for name in names:
        path = os.path.join(top, name)
        with open(path, "rb") as file:
            found[os.path.relpath(path, sys.argv[1])] = [
                hashlib.sha256(file.read()).hexdigest(), os.path.getsize(path)]
os.write(1, (json.dumps(found) + "\\n").encode())
"""
FORK_THREE = """
import os
children = []
while len(children) < 3:
    children.append(os.fork())
    if children[-1] == 0:
        children = []
        break
"""
WAIT = "for child in children: os.waitpid(child, 0)"


class GatewayCase(Case):
    def setUp(self):
        super().setUp()
        self.store = Store()
        self.addCleanup(self.store.close)
        self.mount = self.data / "bucket"
        self.own_command = self.data / "cubeshim"
        self.own_command.symlink_to(COMMAND)
        # A killed gateway leaves its socket.
        self.addCleanup(lambda: [socket.unlink() for socket in self.sockets()])
        self.addCleanup(self.end_gateways)
        for number in range(40):
            self.store.objects[f"train/{number % 4}/file {number}+ü.jpg"] = os.urandom(
                1000 * (number + 1))
        self.store.objects["train/empty"] = b""

    def environment(self, **settings):
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("CUBESHIM_", "AWS_"))}
        return clean | {
            "LD_PRELOAD": LIBRARY, "CUBESHIM_NAME": self.name, "CUBESHIM_RAM": "64M",
            "CUBESHIM_STATS": "off", "CUBESHIM_ANNOUNCE": "0",
            "CUBESHIM_COMMAND": str(self.own_command),
            "CUBESHIM_BUCKETS": f"{self.mount}=s3://bucket/train", "CUBESHIM_S3_TIMEOUT": "5",
            "HOME": str(self.data)
        } | self.store.environment() | settings

    def start_job(self, text, *words, **settings):
        job = subprocess.Popen([PYTHON, "-uc", text, *map(str, words)],
                               env=self.environment(**settings), stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(job.communicate)
        self.addCleanup(job.kill)
        return job

    def run_job(self, text, *words, **settings):
        return subprocess.run([PYTHON, "-uc", text, *map(str, words)], text=True,
                              env=self.environment(**settings), capture_output=True,
                              timeout=DEADLINE_S)

    def gateways(self):
        """Returns the gateways of this test, which are found by the name of their command."""
        return gateways_of(self.own_command)

    def sockets(self):
        return list(Path(self.region).parent.glob(Path(self.region).name + ".gateway-*"))

    def end_gateways(self, number=signal.SIGKILL):
        ended = self.gateways()
        for pid in ended:
            os.kill(pid, number)
        return ended

    def let_gateways_end(self):
        """Ends all gateways of this test cleanly, so that they remove their caches and sockets."""
        end_gateways(self.own_command)

    def wait_until(self, is_so):
        deadline = time.monotonic() + DEADLINE_S
        while not is_so():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)

    def wanted(self):
        return {
            key.removeprefix("train/"): [hashlib.sha256(content).hexdigest(),
                                         len(content)]
            for key, content in self.store.objects.items()
        }

    def assert_reads_all(self, done):
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(json.loads(done.stdout), self.wanted())


class Serves(GatewayCase):
    def test_each_object_is_fetched_once_for_all_processes(self):
        done = self.run_job(FORK_THREE + READ_ALL + WAIT, self.mount)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual([json.loads(line) for line in done.stdout.splitlines()],
                         [self.wanted()] * 4)
        gets = sorted(key for kind, key in self.store.log if kind == "GET")
        self.assertEqual(gets, sorted(self.store.objects))
        self.assertEqual(self.store.requests("HEAD"), 0)
        self.assertEqual(self.store.requests("LIST"), 5)
        self.assertEqual(self.store.refused, [])

    @unittest.skipIf(os.geteuid() != 0, "only root has namespaces")
    def test_another_mount_namespace_hits_records_filled_by_the_gateway(self):
        read = ("import os, sys\n"
                "for name in os.listdir(sys.argv[1] + '/0') * 3:\n"
                "    open(f'{sys.argv[1]}/0/{name}', 'rb').read()\n")
        job = self.start_job(read + "print(), sys.stdin.read()", self.mount)
        self.assertEqual(job.stdout.readline(), "\n")
        report = self.data / "report"
        environment = self.environment(CUBESHIM_STATS=str(report), CUBESHIM_STATS_FORMAT="json")
        preload = "LD_PRELOAD=" + environment.pop("LD_PRELOAD")
        subprocess.run(["unshare", "--mount", "env", preload, PYTHON, "-c", read, self.mount],
                       env=environment, check=True, timeout=DEADLINE_S)
        seen = json.loads(report.read_text())
        self.assertEqual((seen["misses"], seen["hits"]["ram"], self.store.requests("GET")),
                         (10, 20, 10))

    def test_another_store_and_other_keys_share_nothing(self):
        other = Store()
        self.addCleanup(other.close)
        read = "import sys; print(open(sys.argv[1] + '/who').read()); sys.stdin.read()"
        self.store.objects, other.objects = {"train/who": b"first"}, {"train/who": b"second"}
        job = self.start_job(read, self.mount)
        self.assertEqual(job.stdout.readline(), "first\n")
        done = self.run_job(read, self.mount, AWS_ENDPOINT_URL=other.url)
        self.assertEqual((done.stdout, done.stderr), ("second\n", ""))
        without = self.run_job(read, self.mount, AWS_SECRET_ACCESS_KEY="wrong")
        self.assertIn("PermissionError", without.stderr)
        self.assertEqual(len(self.gateways()), 3)
        job.communicate()

    def test_any_valid_name_has_a_socket_for_copies(self):
        with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
            known = {"CUBESHIM_RAM_DIR": directory, "CUBESHIM_NAME": "n" * 64}
            job = self.start_job(
                "import sys\n"
                "print(len(open(sys.argv[1] + '/0/file 4+ü.jpg', 'rb').read()), flush=True)\n"
                "sys.stdin.read()", self.mount, CUBESHIM_MODE="real", **known)
            self.assertEqual(job.stdout.readline(), "5000\n")
            self.end_gateways()
            self.wait_until(lambda: not self.gateways())
            [socket] = Path(directory).glob("*.sock")
            job.kill()
            job.wait()
            told = f"removed {socket}, on which no process listened"
            self.wait_until(lambda: told in self.command("clear", env=known).stdout.decode())

    def test_path_too_long_for_any_socket_is_reported_immediately(self):
        with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
            long = Path(directory) / ("d" * 80)
            long.mkdir()
            done = self.run_job("import os, sys; os.listdir(sys.argv[1])", self.mount,
                                CUBESHIM_RAM_DIR=str(long))
        self.assertIn("Input/output error", done.stderr)
        self.assertIn(f"no socket for copies: File name too long: {long}", done.stderr)

    def test_a_store_beyond_the_eighth_is_refused_with_the_reason(self):
        job = self.start_job("import os, sys; os.listdir(sys.argv[1]); print(); sys.stdin.read()",
                             self.mount)
        job.stdout.readline()
        for number in range(7):
            environment = self.environment(AWS_SECRET_ACCESS_KEY=str(number), LD_PRELOAD="")
            gateway = subprocess.Popen([self.own_command, "gateway"], env=environment)
            self.addCleanup(gateway.wait)
            self.addCleanup(gateway.kill)
        self.wait_until(lambda: len(self.sockets()) == 8)
        ninth = self.run_job("import os, sys; os.listdir(sys.argv[1])", self.mount,
                             AWS_SECRET_ACCESS_KEY="one too many")
        self.assertIn("Input/output error", ninth.stderr)
        self.assertIn("use 8 stores or credentials already", ninth.stderr)

    def test_listings_without_end_fit_into_a_small_cache(self):
        self.store.objects = {f"train/{i:05}" + "n" * 200: b"x" for i in range(2000)}
        read = """
import os, sys
for i in range(60):
    assert os.path.getsize(sys.argv[1] + "/00007" + "n" * 200) == 1
    if len(sys.argv) > 2: print(i, flush=True), sys.stdin.readline()
"""
        settings = {"CUBESHIM_RAM": "8M", "CUBESHIM_CONSISTENCY": "open"}
        done = self.run_job(read, self.mount, **settings)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        job = self.start_job(read, self.mount, "changes", **settings)
        for i in range(60):
            self.assertEqual(job.stdout.readline(), f"{i}\n", "the listings differ")
            self.store.objects[f"train/new {i}"] = b"x"
            job.stdin.write("\n")
            job.stdin.flush()
        self.assertEqual(job.communicate()[1], "")

    def test_page_without_an_etag_is_not_taken_for_an_object(self):
        self.store.objects = {"train/a": b"a" * 1000}
        read = "import sys; print(len(open(sys.argv[1] + '/a', 'rb').read()))"
        self.store.fault = [None, "page"]
        self.assertEqual(self.run_job(read, self.mount).stdout, "1000\n")
        self.store.fault = [None, *["page"] * 99]
        done = self.run_job(read, self.mount, CUBESHIM_NAME=self.name + "-2")
        self.assertIn("Input/output error", done.stderr)
        self.assertIn("has no ETag", done.stderr)

    def test_stat_agrees_with_an_object_that_has_changed_since_it_was_listed(self):
        large = 17 << 20  # above CUBESHIM_MAX_FILE
        for size in (6, large):
            self.store.objects = {"train/a": b"old"}
            job = self.start_job(
                "import os, sys; a = sys.argv[1] + '/a'; print(os.path.getsize(a), flush=True); "
                "sys.stdin.readline(); file = open(a); print(len(file.read()), os.path.getsize(a))",
                self.mount)
            self.assertEqual(job.stdout.readline(), "3\n")
            self.store.objects["train/a"] = b"x" * size
            self.assertEqual(job.communicate("\n"), (f"{size} {size}\n", ""))

    def test_a_signal_handler_ends_the_wait_for_a_store(self):
        self.store.objects = {"train/a": b"a" * 1000}
        self.store.fault = [None, *["stalled"] * 9]
        done = self.run_job(
            """
import os, signal, sys
class Alarm(Exception): pass
def ring(*_): raise Alarm
signal.signal(signal.SIGALRM, ring)
os.stat(sys.argv[1] + "/a")
signal.alarm(1)
try: open(sys.argv[1] + "/a").read()
except Alarm: print("interrupted")
""", self.mount, CUBESHIM_S3_TIMEOUT="60")
        self.assertEqual((done.stdout, done.stderr), ("interrupted\n", ""))

    def test_a_large_directory_takes_a_listing_of_a_thousand_names_each(self):
        self.store.objects = {f"train/{i:05}": b"x" for i in range(2500)}
        done = self.run_job("import os, sys; print(len(os.listdir(sys.argv[1])))", self.mount)
        self.assertEqual((done.stdout, done.stderr), ("2500\n", ""))
        self.assertEqual(self.store.requests("LIST"), 3)

    def test_programs_that_go_without_a_cache_read_copies(self):
        self.store.objects["train/large"] = os.urandom(20 << 20)
        self.region.write_bytes(b"not a region")
        done = self.run_job(FORK_THREE + READ_ALL + WAIT, self.mount)
        self.assertEqual([json.loads(line) for line in done.stdout.splitlines()],
                         [self.wanted()] * 4)
        for line in done.stderr.splitlines():
            self.assertIn(f"files are read without a cache: {self.region} is refused", line)
        # All jobs share a listing.
        self.assertEqual(self.store.requests("LIST"), 5)
        self.let_gateways_end()

    def test_children_of_a_program_without_a_cache_read_without_another_message(self):
        # This is the longest allowed name.
        name = self.name.ljust(64, "x")
        region = self.region.with_name(self.region.name.replace(self.name, name))
        region.write_bytes(b"not a region")
        self.addCleanup(region.unlink)
        first = "import sys; open(sys.argv[1] + '/empty', 'rb').read()\n"
        last = "\nif children: sys.stdin.read()"
        job = self.start_job(first + FORK_THREE + READ_ALL + WAIT + last, self.mount,
                             CUBESHIM_NAME=name, CUBESHIM_RAM_KEEP="1")
        for _ in range(4):
            self.assertEqual(json.loads(job.stdout.readline()), self.wanted())
        # The job made the region for the gateway, and is the last process to leave it.
        self.let_gateways_end()
        trouble = job.communicate(timeout=DEADLINE_S)[1]
        self.assertEqual(trouble.count("\n"), 1, trouble)
        self.assertEqual(list(region.parent.glob(f"*{self.name[:20]}*spare*")), [])

    def test_a_copy_has_the_stat_of_its_path(self):
        # The region has no room for most of these objects.
        self.store.objects = {f"train/{i}": os.urandom(400_000) for i in range(30)}
        job = """
import os, subprocess, sys
def same(one, other): return [getattr(one, n) == getattr(other, n) for n in names]
names = [n for n in dir(os.stat_result) if n.startswith("st_")]
copies = 0
for name in os.listdir(sys.argv[1]):
    path = os.path.join(sys.argv[1], name)
    with open(path, "rb") as file:
        assert os.path.samestat(os.stat(path), os.fstat(file.fileno()))
        assert all(same(os.stat(path), os.fstat(file.fileno())))
        copies += "memfd:" in os.readlink(f"/proc/self/fd/{file.fileno()}")
    only = os.open(path, os.O_PATH)
    assert all(same(os.stat(path), os.fstat(only)))
    assert all(same(os.stat(path), os.stat(f"/proc/self/fd/{only}")))
    os.close(only)
with open(path, "rb") as file:
    child = "import os, sys; print(os.path.samestat(os.fstat(0), os.stat(sys.argv[1])))"
    print(copies > 5, subprocess.run([sys.executable, "-c", child, path], stdin=file,
                                     capture_output=True, text=True).stdout)
"""
        done = self.run_job(job, self.mount, CUBESHIM_RAM="8M")
        self.assertEqual((done.stdout, done.stderr), ("True True\n\n", ""))
        done = subprocess.run(["cp", "-r", self.mount, self.data / "copied"], text=True,
                              env=self.environment(CUBESHIM_RAM="8M"), capture_output=True,
                              timeout=DEADLINE_S)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for key, content in self.store.objects.items():
            self.assertEqual((self.data / "copied" / Path(key).name).read_bytes(), content)

    def test_a_damaged_part_of_a_copy_is_fetched_again(self):
        content = os.urandom(20 << 20)
        self.store.objects = {"train/large": content}
        read = "import hashlib, sys; " \
            "print(hashlib.sha256(open(sys.argv[1] + '/large', 'rb').read()).hexdigest())"
        for number, checksums in enumerate((None, [])):  # a checksum; the ETag
            self.store.checksums = checksums
            self.store.fault = [None, None, "damaged"]
            name = f"{self.name[:60]}-{number}"
            done = self.run_job(read, self.mount, CUBESHIM_BLOCK="0", CUBESHIM_NAME=name)
            self.assertEqual((done.stdout.strip(), done.stderr), (self.wanted()["large"][0], ""))
            self.store.fault = [None, None, *["damaged"] * 99]
            done = self.run_job(read, self.mount, CUBESHIM_BLOCK="0", CUBESHIM_NAME=name + "x")
            self.assertIn("Input/output error", done.stderr)
            self.assertEqual(
                done.stderr.count("s3://bucket/train/large: the bytes do not match"), 1)
        self.let_gateways_end()

    def test_a_damaged_block_in_memory_is_fetched_again_for_a_copy(self):
        self.store.objects = {"train/large": os.urandom(20 << 20)}
        self.store.fault = [None, "damaged"]
        done = self.run_job(
            "import os, subprocess, sys\n"
            "fd = os.open(sys.argv[1] + '/large', os.O_RDONLY)\n"
            "for at in range(0, 10 << 20, 1 << 20): os.pread(fd, 1 << 20, at)\n"
            "done = subprocess.run(['sha256sum'], stdin=fd, capture_output=True, text=True)\n"
            "print(done.stdout.split()[0])", self.mount)
        self.assertEqual((done.stdout.strip(), done.stderr), (self.wanted()["large"][0], ""))
        self.assertEqual(self.store.fault, [])

    def test_kernel_file_of_an_old_version_has_no_bytes_of_the_new_one(self):
        job = """
import os, subprocess, sys
fd = os.open(sys.argv[1] + "/large", os.O_RDONLY)
if sys.argv[2] == "read": os.pread(fd, 3, 0)
print("open", flush=True)
sys.stdin.readline()
print(subprocess.run(["head", "-c", "3"], stdin=fd, capture_output=True).stdout)
"""
        for word, new in (("read", b"new"), ("none", b"n" * (20 << 20))):
            self.store.objects = {"train/large": b"o" * (20 << 20)}
            with self.start_job(job, self.mount, word) as process:
                self.assertEqual(process.stdout.readline(), "open\n")
                self.store.objects["train/large"] = new
                self.assert_reads_all(self.run_job(READ_ALL, self.mount))
                self.assertNotIn("n", process.communicate("\n", timeout=DEADLINE_S)[0])
            self.let_gateways_end()

    def test_a_store_that_ignores_ranges_serves_large_objects(self):
        self.store.objects = {"train/large": os.urandom((20 << 20) + 1)}
        self.store.ignores_ranges = True
        for block in ("0", "1M"):
            done = self.run_job(READ_ALL, self.mount, CUBESHIM_BLOCK=block,
                                CUBESHIM_NAME=f"{self.name[:60]}-{block}")
            self.assertEqual(json.loads(done.stdout), self.wanted())
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertIn("s3://bucket/train/large: the store ignores ranges", done.stderr)
        self.let_gateways_end()

    def test_range_longer_than_requested_gives_one_line_and_eio(self):
        self.store.objects = {"train/large": os.urandom(20 << 20)}
        self.store.fault = [None, *["long"] * 99]  # after the listing
        read = "import os, sys; os.pread(os.open(sys.argv[1] + '/large', 0), 1000, 5 << 20)"
        done = self.run_job(read, self.mount, CUBESHIM_BLOCK="1M")
        self.assertIn("OSError: [Errno 5]", done.stderr)
        self.assertEqual(done.stderr.count("s3://bucket/train/large: the store has sent more"), 1)
        self.let_gateways_end()

    def test_a_store_with_weak_etags_serves_large_objects_of_one_version(self):
        content, changed = os.urandom(20 << 20), os.urandom(20 << 20)
        self.store.weak_etags = True
        for block in ("0", "1M"):
            self.store.objects = {"train/large": content}
            done = self.run_job(READ_ALL, self.mount, CUBESHIM_BLOCK=block,
                                CUBESHIM_NAME=f"{self.name[:60]}-{block}")
            self.assertEqual((json.loads(done.stdout), done.stderr), (self.wanted(), ""))
            self.store.after(2, lambda: self.store.objects.update({"train/large": changed}))
            done = self.run_job(READ_ALL, self.mount, CUBESHIM_BLOCK=block,
                                CUBESHIM_NAME=f"{self.name[:60]}-{block}x")
            self.assertIn("OSError: [Errno 5]", done.stderr)
        self.let_gateways_end()

    def test_missing_bucket_gives_one_line_after_one_request(self):
        done = self.run_job(
            "import sys\n"
            "try: open(sys.argv[1] + '/a/b/c')\n"
            "except OSError as error: print(error.errno)", self.mount,
            CUBESHIM_BUCKETS=f"{self.mount}=s3://typo/train")
        self.assertEqual(done.stdout, "5\n")
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn(f"there is no bucket typo at {self.store.url}", done.stderr)
        self.assertEqual(self.store.requests("NO_BUCKET"), 1)

    def test_the_report_agrees_with_the_log_of_the_store(self):
        self.store.objects["train/large"] = os.urandom((20 << 20) + 1)
        self.store.fault = [None, "503", None, "truncated", "503"]
        done = self.run_job(
            FORK_THREE + READ_ALL + "os.open(sys.argv[1] + '/empty', os.O_PATH)\n" +
            "os.pread(os.open(sys.argv[1] + '/large', os.O_RDONLY), 1000, 5 << 20)\n" + WAIT,
            self.mount, CUBESHIM_STATS=str(self.data / "report"), CUBESHIM_STATS_FORMAT="json",
            CUBESHIM_S3_TIMEOUT="30")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        report = json.loads((self.data / "report").read_text())
        size = sum(map(len, self.store.objects.values()))
        self.assertEqual(report["bytes_served"], 4 * (size + 1000))
        self.assertEqual(report["origin"], {
            "opens": 0,
            "reads": self.store.requests("GET"),
            "bytes": self.store.given,
            "stats": self.store.requests("LIST")
        })
        self.assertEqual(report["metadata"]["read"], 5)
        self.assertEqual(report["bucket"], {
            "gets": self.store.requests("GET"), "bytes": self.store.given,
            "lists": self.store.requests("LIST"), "misses": report["misses"]
        })

    def test_the_report_names_the_store_as_the_source(self):
        self.store.objects = {"train/large": os.urandom((20 << 20) + 1), "train/small": b"s" * 2048}
        done = self.run_job(READ_ALL, self.mount, CUBESHIM_STATS=str(self.data / "report"))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        served, _, saved, large, store = (self.data / "report").read_text().splitlines()
        self.assertEqual(served, "cubeshim: served: 2 file opens, 20.0 MiB read or mapped: 1 from "
                         "the object "
                         "store, 1 of large files, which are read in parts")
        self.assertTrue(large.endswith("; cubeshim fetched 20.0 MiB from the object store"), large)
        self.assertEqual(store, f"cubeshim: object store: {self.store.requests('GET')} GETs "
                         "brought 20.0 MiB; 1 LIST")

    def test_a_pack_in_a_bucket_is_one_clear_line(self):
        done = self.run_job("import os, sys; print(os.path.exists('/packed'))", self.mount,
                            CUBESHIM_PACKS=f"/packed={self.mount}/a/t.cube")
        self.assertEqual((done.stdout, done.stderr.count("\n")), ("False\n", 1), done.stderr)
        self.assertIn(f"{self.mount}/a/t.cube lies in a bucket", done.stderr)
        self.assertIn("`cubeshim cat s3://bucket/train/a/t.cube > FILE`", done.stderr)

    def test_a_pack_by_its_s3_name_is_refused_with_the_way_to_fetch_it(self):
        done = self.run_job("pass", CUBESHIM_PACKS="/packed=s3://bucket/train/t.cube")
        self.assertEqual(done.returncode, 0)
        self.assertIn("`cubeshim cat s3://BUCKET/KEY > FILE`", done.stderr)

    def test_top_shows_the_gateway(self):
        job = self.start_job(
            "import os, sys\n"
            "for top, _, names in os.walk(sys.argv[1]):\n"
            "    for name in names: open(os.path.join(top, name), 'rb').read()\n"
            "print(flush=True); sys.stdin.read()", self.mount)
        job.stdout.readline()
        look = self.command("top", "--json", "--name", self.name, "--interval", "1", "--count", "1")
        gateway = json.loads(look.stdout.splitlines()[0])["gateway"]
        self.assertEqual((gateway["gateways"], gateway["in_flight"]), (1, 0))
        self.assertGreater(gateway["most_in_flight"], 0)

    def assert_each_byte_came_once(self, key):
        end = 0
        for name, begin, until in sorted(self.store.ranges):
            self.assertEqual((name, begin), (key, end))
            end = until
        self.assertEqual(end, len(self.store.objects[key]))

    def test_an_object_above_the_largest_file_comes_in_blocks_once(self):
        self.store.objects = {"train/large": os.urandom((20 << 20) + 1), "train/small": b"s"}
        done = self.run_job(FORK_THREE + READ_ALL + WAIT, self.mount)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual([json.loads(line) for line in done.stdout.splitlines()],
                         [self.wanted()] * 4)
        self.assert_each_byte_came_once("train/large")

    def test_a_kernel_file_of_it_takes_the_blocks_that_have_come(self):
        self.store.objects = {"train/large": os.urandom((20 << 20) + 1)}
        done = self.run_job(
            "import os, subprocess, sys\n"
            "with open(sys.argv[1] + '/large', 'rb', buffering=0) as file:\n"
            "    head = file.read(8 << 20)\n"
            "    rest = subprocess.run(['cat'], stdin=file, capture_output=True).stdout\n"
            "with open(sys.argv[1] + '/large', 'rb') as file: assert file.read(8 << 20) == head\n"
            "import hashlib; print(hashlib.sha256(head + rest).hexdigest())", self.mount)
        self.assertEqual(done.stderr, "")
        self.assertEqual(done.stdout.strip(), self.wanted()["large"][0])
        fetched = [(begin, until) for _, begin, until in self.store.ranges if begin < 8 << 20]
        self.assertEqual(sum(until - begin for begin, until in fetched), 8 << 20)
        # Blocks that are being read ahead at the fork can be fetched twice.
        self.assertLessEqual(self.store.given, (8 << 20) + 2 * ((12 << 20) + 1))

    def test_copy_whose_end_is_in_memory_is_fetched_once(self):
        self.store.objects = {"train/large": os.urandom((65 << 20) + 1)}
        self.store.checksums = []  # only the ETag
        done = self.run_job(
            "import os, subprocess, sys\n"
            "fd = os.open(sys.argv[1] + '/large', os.O_RDONLY)\n"
            "for at in range(8 << 20, os.fstat(fd).st_size, 1 << 20): os.pread(fd, 1 << 20, at)\n"
            "done = subprocess.run(['sha256sum'], stdin=fd, capture_output=True, text=True)\n"
            "print(done.stdout.split()[0])", self.mount, CUBESHIM_RAM="256M",
            CUBESHIM_S3_TIMEOUT="60")
        self.assertEqual((done.stdout.strip(), done.stderr), (self.wanted()["large"][0], ""))
        self.assert_each_byte_came_once("train/large")

    def test_a_large_object_that_changes_or_vanishes_between_ranges_is_eio(self):
        job = """
import os, sys
fd = os.open(sys.argv[1] + "/large", os.O_RDONLY)
print(os.pread(fd, 3, 0), flush=True)
sys.stdin.readline()
for at in (12 << 20, 12 << 20, 0):
    try: print(os.pread(fd, 3, at))
    except OSError as error: print(error.errno)
"""
        new = b"n" * (20 << 20)
        for change, has_next_gateway in ((new, False), (new, True), (None, False)):
            self.store.objects = {"train/large": b"o" * (20 << 20)}
            with self.start_job(job, self.mount) as process:
                self.assertEqual(process.stdout.readline(), "b'ooo'\n")
                if has_next_gateway:
                    self.end_gateways()
                    self.wait_until(lambda: not self.gateways())
                self.store.objects = {"train/large": change} if change else {}
                out, trouble = process.communicate("\n", timeout=DEADLINE_S)
            self.assertEqual(out, "5\n5\nb'ooo'\n")
            self.assertEqual(trouble.count("\n"), 1, trouble)
            self.assertIn("s3://bucket/train/large: the object has changed", trouble)
            # Each gateway reports an error only one time.
            self.end_gateways(signal.SIGTERM)
            self.wait_until(lambda: not self.gateways())

    def test_a_large_object_outlives_a_killed_gateway_and_faults(self):
        self.store.objects = {"train/large": os.urandom(40 << 20)}
        self.store.fault = [None, "503", "truncated", "reset_mid_body"]
        job = self.start_job(
            "import hashlib, sys\n"
            "with open(sys.argv[1] + '/large', 'rb', buffering=0) as file:\n"
            "    data = file.read(1 << 20)\n"
            "    print(len(data), flush=True)\n"
            "    sys.stdin.readline()\n"
            "    print(hashlib.sha256(data + file.read()).hexdigest())", self.mount,
            CUBESHIM_S3_TIMEOUT="30")
        self.assertEqual(job.stdout.readline(), f"{1 << 20}\n")
        self.assertEqual(len(self.end_gateways()), 1)
        out, trouble = job.communicate("\n", timeout=DEADLINE_S)
        self.assertEqual((out.strip(), trouble), (self.wanted()["large"][0], ""))

    def test_a_killed_gateway_is_replaced(self):
        job = self.start_job(
            "import sys\n"
            "for line in sys.stdin:\n"
            "    print(len(open(sys.argv[1] + '/' + line[:-1], 'rb').read()))", self.mount)
        for number in range(6):
            job.stdin.write(f"{number % 4}/file {number}+ü.jpg\n")
            job.stdin.flush()
            self.assertEqual(job.stdout.readline(), f"{1000 * (number + 1)}\n")
            ended = self.end_gateways()
            self.assertEqual(len(ended), 1)
            self.wait_until(lambda: not self.gateways())

    def test_a_gateway_that_is_killed_in_a_transfer_costs_only_time(self):
        self.store.objects["train/plain"] = os.urandom(100_000)
        self.store.fault = [None, "stalled"]
        job = self.start_job("import sys; print(len(open(sys.argv[1] + '/plain', 'rb').read()))",
                             self.mount)
        self.wait_until(lambda: self.store.requests("GET") == 1)
        self.end_gateways()
        self.assertEqual(job.communicate(timeout=DEADLINE_S), ("100000\n", ""))

    def test_faults_of_the_store_are_overcome(self):
        self.store.fault = [
            None, "503", "truncated", "reset", "damaged_checksum", "chunked", "http_1_0",
            "reset_mid_body", "slow_down", "closed"
        ]
        self.assert_reads_all(self.run_job(READ_ALL, self.mount, CUBESHIM_S3_TIMEOUT="30"))

    def test_retry_without_a_length_has_no_bytes_of_the_failed_attempt(self):
        content = os.urandom(100_000)
        cases = ((content, ["truncated", "chunked"]), (content, ["truncated", "http_1_0"]),
                 (b"", ["page"]))
        for mode in ("virtual", "real"):  # an object in memory; a copy
            for number, (wanted, faults) in enumerate(cases):
                with self.subTest(mode=mode, faults=faults):
                    self.store.objects = {"train/a": wanted}
                    self.store.fault = [None, *faults]
                    self.assert_reads_all(
                        self.run_job(READ_ALL, self.mount, CUBESHIM_MODE=mode,
                                     CUBESHIM_NAME=f"{self.name[:50]}-{mode}-{number}"))
                    self.assertEqual(self.store.fault, [])
        self.let_gateways_end()

    def test_object_that_is_emptied_before_a_retry_is_empty(self):
        self.store.objects = {"train/a": os.urandom(100_000)}
        self.store.fault = [None, "truncated"]
        self.store.after(2, lambda: self.store.objects.update({"train/a": b""}))
        self.assert_reads_all(self.run_job(READ_ALL, self.mount))

    def test_freshness_is_a_conditional_request_for_the_file(self):
        job = """
import os, sys
def read():
    file = sys.argv[1] + "/file"
    try: return open(file, "rb").read()[:20], os.stat(file).st_size
    except OSError as error: return error.errno
for _ in sys.stdin: print(read(), flush=True)
"""
        cases = (("open", 1000), ("ttl:0", 1000), ("open", 0), ("open", 20 << 20))
        for consistency, size in cases:
            with self.subTest(consistency=consistency, size=size):
                self.store.objects = {f"train/other {n}": b"x" for n in range(9)}
                self.store.objects["train/file"] = b"o" * size
                before = [self.store.requests(kind) for kind in ("LIST", "GET", "CONDITIONAL")]

                def counts():
                    kinds = zip(("LIST", "GET", "CONDITIONAL"), before)
                    return [self.store.requests(kind) - old for kind, old in kinds]

                with self.start_job(job, self.mount, CUBESHIM_CONSISTENCY=consistency) as process:

                    def ask():
                        process.stdin.write("\n")
                        process.stdin.flush()
                        return process.stdout.readline().strip()

                    wanted = str((b"o" * min(size, 20), size))
                    self.assertEqual(ask(), wanted)
                    lists, gets, conditional = counts()
                    self.assertEqual(ask(), wanted)
                    again = counts()
                    # The open and the stat make one request each, without bytes.
                    self.assertEqual(again, [lists, gets + 2, conditional + 2])
                    self.store.objects["train/file"] = b"new!"
                    self.assertEqual(ask(), "(b'new!', 4)")
                    self.assertGreater(counts()[0], again[0])
                    self.store.objects.pop("train/file")
                    self.assertEqual(ask(), "2")
                    self.store.objects["train/file"] = b"back"
                    self.assertEqual(ask(), "(b'back', 4)")
                    self.store.objects["train/file"] = b""
                    self.assertEqual(ask(), "(b'', 0)")
                    # The next gateway does not know the ETag.
                    self.end_gateways()
                    self.wait_until(lambda: not self.gateways())
                    lists = counts()[0]
                    self.assertEqual(ask(), "(b'', 0)")
                    self.assertEqual(counts()[0], lists)
                    self.assertEqual(process.communicate(timeout=DEADLINE_S), ("", ""))

    def test_a_stat_does_not_join_a_listing_that_began_before_it(self):
        made, go_on = threading.Event(), threading.Event()
        # Only the first listing waits.
        self.store.before_listing = lambda: made.is_set() or (made.set(), go_on.wait(DEADLINE_S))
        text = "import os, sys; print('asking'); print(os.path.exists(sys.argv[1] + '/1/new'))"
        first = self.start_job(text, self.mount, CUBESHIM_CONSISTENCY="open")
        self.assertTrue(made.wait(DEADLINE_S))
        self.store.objects["train/1/new"] = b"new"
        second = self.start_job(text, self.mount, CUBESHIM_CONSISTENCY="open")
        self.assertEqual(second.stdout.readline(), "asking\n")
        # The second process waits for the gateway's answer.
        futex = "202 " if os.uname().machine == "x86_64" else "98 "
        self.wait_until(lambda: Path(f"/proc/{second.pid}/syscall").read_text().startswith(futex))
        go_on.set()
        self.assertEqual(first.communicate(timeout=DEADLINE_S)[1], "")
        self.assertEqual(second.communicate(timeout=DEADLINE_S), ("True\n", ""))

    def test_each_of_two_mounts_of_a_bucket_sees_a_change(self):
        other = self.data / "other"
        self.store.objects["train/file"] = b"old"
        job = self.start_job(
            "import sys\n"
            "for _ in sys.stdin:\n"
            "    print(*(open(p + '/file').read() for p in sys.argv[1:]), flush=True)", self.mount,
            other, CUBESHIM_CONSISTENCY="open",
            CUBESHIM_BUCKETS=f"{self.mount}=s3://bucket/train:{other}=s3://bucket/train")
        for content in (b"old", b"new"):
            self.store.objects["train/file"] = content
            job.stdin.write("\n")
            job.stdin.flush()
            self.assertEqual(job.stdout.readline().encode(), content + b" " + content + b"\n")

    def test_two_buckets_in_other_regions_are_read_at_once(self):
        other = self.data / "other"
        self.store.region, self.store.others = "us-west-2", {"other": "ap-south-1"}
        keys = [key.removeprefix("train/") for key in self.store.objects]
        read = ("import concurrent.futures, sys\n"
                "def read(path): return len(open(path, 'rb').read())\n"
                "with concurrent.futures.ThreadPoolExecutor(64) as pool:\n"
                "    print(sum(pool.map(read, sys.argv[1:])))")
        paths = [directory / key for key in keys for directory in (self.mount, other)]
        done = self.run_job(
            read, *paths, AWS_REGION="eu-central-1",
            CUBESHIM_BUCKETS=f"{self.mount}=s3://bucket/train:{other}=s3://other/train")
        self.assertEqual(done.stderr, "")
        self.assertEqual(int(done.stdout), 2 * sum(map(len, self.store.objects.values())))

    def test_expired_keys_are_searched_for_only_now_and_then(self):
        runs, script = self.data / "runs", self.data / "keys.sh"
        keys = {
            "Version": 1, "AccessKeyId": "KEY", "SecretAccessKey": SECRET,
            "Expiration": "2020-01-01T00:00:00Z"
        }
        script.write_text(f"#!/bin/sh\necho >> {runs}\necho '{json.dumps(keys)}'\n")
        script.chmod(0o755)
        (self.data / ".aws").mkdir()
        (self.data / ".aws/config").write_text(f"[profile p]\ncredential_process = {script}\n")
        self.store.objects = {f"train/{i}": b"x" for i in range(100)}
        done = self.run_job(READ_ALL, self.mount, AWS_PROFILE="p", AWS_ACCESS_KEY_ID="",
                            AWS_SECRET_ACCESS_KEY="")
        # The store accepts the keys, because it does not know when they expire.
        self.assert_reads_all(done)
        self.assertLess(runs.read_text().count("\n"), 20)

    def test_a_file_is_checked_again_when_its_time_is_over(self):
        self.store.objects["train/file"] = b"old"
        job = self.start_job(
            "import sys\n"
            "for _ in sys.stdin: print(open(sys.argv[1] + '/file').read(), flush=True)", self.mount,
            CUBESHIM_CONSISTENCY="ttl:1")

        def ask():
            job.stdin.write("\n")
            job.stdin.flush()
            return job.stdout.readline().strip()

        self.wait_until(lambda: ask() == "old" and self.store.requests("CONDITIONAL") > 0)
        self.assertEqual(self.store.requests("LIST"), 1)
        self.store.objects["train/file"] = b"new"
        self.wait_until(lambda: ask() == "new")

    def test_a_refusal_is_eacces_and_one_line(self):
        done = self.run_job(
            "import sys\n"
            "for _ in range(3):\n"
            "    try:\n"
            "        open(sys.argv[1] + '/empty')\n"
            "    except OSError as error:\n"
            "        print(error.errno)", self.mount, AWS_SECRET_ACCESS_KEY="wrong")
        self.assertEqual(done.stdout, "13\n" * 3)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertIn("SignatureDoesNotMatch", done.stderr)
        self.assertIn("credentials from the environment", done.stderr)
        self.assertNotIn("wrong", done.stderr)

    def test_a_path_without_an_object_is_absent(self):
        done = self.run_job(
            "import os, sys\n"
            "print(os.path.exists(sys.argv[1] + '/no'), os.path.exists(sys.argv[1] + '/no/no'),"
            " os.path.isdir(sys.argv[1] + '/0'))", self.mount)
        self.assertEqual((done.stdout, done.stderr), ("False False True\n", ""))

    def test_gateways_end_after_the_last_program(self):
        # Each configuration of a user has its own gateway, and the gateways do not wait for each
        # other.
        for number in range(2):
            done = self.run_job("import os, sys; os.listdir(sys.argv[1])", self.mount,
                                HOME=str(self.data / str(number)))
            self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(len(self.gateways()), 2)
        self.wait_until(lambda: not self.gateways())
        self.assertEqual(self.sockets(), [])

    def test_clear_removes_the_socket_of_a_killed_gateway(self):
        job = self.start_job("import os, sys; os.listdir(sys.argv[1]); print(); sys.stdin.read()",
                             self.mount)
        job.stdout.readline()
        [socket] = self.sockets()
        self.end_gateways()
        self.wait_until(lambda: not self.gateways())
        job.kill()
        job.wait()
        told = f"removed {socket}, on which no process listened"
        # The kernel might still be removing the killed processes.
        self.wait_until(lambda: told in self.command("clear", "--name", self.name).stdout.decode())
        self.assertEqual(self.sockets(), [])

    def test_it_keeps_secrets_to_itself(self):
        job = self.start_job(
            "import os, sys; os.listdir(sys.argv[1]); print(open(sys.argv[1] + '/empty').read());"
            "sys.stdin.read()", self.mount)
        job.stdout.readline()
        gateway, = self.gateways()
        self.assertNotIn(SECRET.encode(), self.region.read_bytes())
        self.assertNotIn(SECRET.encode(), Path(f"/proc/{gateway}/cmdline").read_bytes())
        limits = Path(f"/proc/{gateway}/limits").read_text()
        # Root may read any process.
        if os.geteuid() != 0:
            with self.assertRaises(PermissionError):
                Path(f"/proc/{gateway}/environ").read_bytes()
        self.assertRegex(limits, r"Max core file size +0 +0 ")


IN_CONTAINER = """
import ctypes, hashlib, mmap, os, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
rights = dict(line.split(":") for line in open("/proc/self/status"))
nothing = 0
for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"): nothing |= int(rights[kind], 16)
assert (os.getresuid(), nothing, int(rights["NoNewPrivs"])) == ((65534,) * 3, 0, 1), rights
assert libc.mount(b"none", b"/tmp", b"tmpfs", 0, None) == -1 and ctypes.get_errno() == 1
assert sorted(os.listdir("/dev")) == ["null", "random", "shm", "urandom", "zero"]
def digest(data): return hashlib.sha256(data).hexdigest()
name = sys.argv[1] + "/0/file 36+ü.jpg"
with open(name, "rb") as file:
    data = file.read()
    assert mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)[:] == data
    read, write = os.pipe()
    assert os.sendfile(write, file.fileno(), 7, 1000) == 1000
    assert os.read(read, 1000) == data[7:1007]
    file.seek(0)
    assert subprocess.run(["cat"], stdin=file, capture_output=True).stdout == data
assert subprocess.run([sys.argv[1] + "/tool", "runs"], capture_output=True).stdout == b"runs\\n"
"""


@unittest.skipIf(os.geteuid() != 0, "only root has namespaces")
class Containers(GatewayCase):
    """Pods of the restricted standard: another user, no capabilities and no way to gain
    capabilities, no /dev/fuse, and a /dev/shm of 64 MB."""

    def in_container(self, text, *words, **settings):
        folder = self.data
        # Other users may not enter the build tree, so the files are copied.
        self.own_command.unlink()
        shutil.copy(COMMAND, self.own_command)
        shutil.copy(LIBRARY, folder / "lib.so")
        folder.parent.chmod(0o755)
        (folder / "dev").mkdir()
        (folder / "home").mkdir()
        os.chown(folder / "home", NOBODY, NOBODY)
        script = f"""set -e
mount -t tmpfs none {folder}/dev
for name in null random urandom zero; do
  touch {folder}/dev/$name
  mount --bind /dev/$name {folder}/dev/$name
done
mkdir {folder}/dev/shm
mount -t tmpfs -o size=64M,mode=1777 none {folder}/dev/shm
mount --rbind {folder}/dev /dev
exec setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups --inh-caps=-all --bounding-set=-all \\
  --no-new-privs env LD_PRELOAD={folder}/lib.so "$@"
"""
        environment = self.environment(HOME=str(folder / "home"), CUBESHIM_RAM="32M", **settings)
        del environment["LD_PRELOAD"]
        # When the program ends, the pid namespace and the gateway end with it.
        command = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "/bin/sh", "-c", script]
        return subprocess.run([*command, "sh", PYTHON, "-c", text, *map(str, words)], text=True,
                              env=environment, capture_output=True, timeout=DEADLINE_S,
                              cwd=folder)

    def test_a_user_without_privileges_reads_an_unmounted_bucket(self):
        self.store.objects["train/tool"] = Path("/bin/echo").read_bytes()
        done = self.in_container(IN_CONTAINER + READ_ALL, self.mount)
        self.assert_reads_all(done)
        self.assertEqual(self.store.requests("HEAD"), 0)
        gets = sorted(key for kind, key in self.store.log if kind == "GET")
        # The executed program is fetched a second time, as a copy.
        self.assertEqual(gets, sorted([*self.store.objects, "train/tool"]))


class LosesItsRegion(GatewayCase):
    def test_a_gateway_ends_with_its_programs_when_the_region_has_lost_its_name(self):
        job = self.start_job(READ_ALL + "\nsys.stdin.readline()", self.mount)
        self.assertEqual(json.loads(job.stdout.readline()), self.wanted())
        self.assertEqual(len(self.gateways()), 1)
        os.unlink(self.region)
        job.communicate("\n", timeout=DEADLINE_S)
        self.wait_until(lambda: not self.gateways())


class WarmsUp(GatewayCase):

    def warm_up(self, *words, **settings):
        known = self.environment(**settings)
        del known["LD_PRELOAD"]
        return subprocess.run([COMMAND, "warmup", *words], env=known, capture_output=True,
                              timeout=DEADLINE_S)

    def test_a_warm_up_fetches_each_object_once_for_the_next_job(self):
        kept = {"CUBESHIM_RAM_KEEP": "1"}
        done = self.warm_up("--json", "s3://bucket/train", **kept)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        report = json.loads(done.stdout)
        self.assertEqual((report["fetched"], report["fetched_bytes"]),
                         (len(self.store.objects), sum(map(len, self.store.objects.values()))))
        self.assert_reads_all(self.run_job(READ_ALL, self.mount, **kept))
        gets = sorted(key for kind, key in self.store.log if kind == "GET")
        self.assertEqual(gets, sorted(self.store.objects))
        self.assertEqual(self.store.requests("HEAD"), 0)

    def test_a_warm_up_of_a_running_job_has_its_buckets_and_credentials(self):
        job = self.start_job(
            "import os, sys\n"
            "os.listdir(sys.argv[1])\n"
            "print(flush=True)\n"
            "sys.stdin.readline()\n"
            "print(len(open(sys.argv[1] + '/1/file 1+ü.jpg', 'rb').read()), flush=True)",
            self.mount)
        job.stdout.readline()
        self.end_gateways()
        self.wait_until(lambda: not self.gateways())
        done = self.command("warmup", "--name", self.name, "s3://bucket/train/1/")
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertIn(b"10 fetched", done.stdout)
        self.store.log.clear()
        self.assertEqual(job.communicate("\n", timeout=DEADLINE_S), ("2000\n", ""))
        self.assertEqual(self.store.requests("GET"), 0)

    def test_a_warm_up_asks_a_process_of_the_job_that_has_its_environment(self):
        # A program that sets its title overwrites the memory that /proc/PID/environ shows.
        overwrite = (
            "import ctypes, sys\n"
            "numbers = open('/proc/self/stat').read().rsplit(') ', 1)[1].split()\n"
            "begin, end = int(numbers[47]), int(numbers[48])\n"
            "ctypes.memset(begin, 0, end - begin)\n"
            "print(flush=True)\n"
            "sys.stdin.readline()\n")
        job = self.start_job(
            "import os, subprocess, sys\n"
            "os.listdir(sys.argv[1])\n"
            f"subprocess.run([sys.executable, '-c', {overwrite!r}])\n", self.mount)
        job.stdout.readline()
        done = self.command("warmup", "--name", self.name, "s3://bucket/train/1/")
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertIn(b"10 fetched", done.stdout)
        self.assertEqual(job.communicate("\n", timeout=DEADLINE_S), ("", ""))

    def test_objects_without_room_are_not_requested(self):
        for number in range(40):
            self.store.objects[f"train/large {number}"] = bytes(1_000_000)
        done = self.warm_up("--json", "s3://bucket/train", CUBESHIM_RAM="20M",
                            CUBESHIM_RAM_KEEP="1")
        report = json.loads(done.stdout)
        self.assertGreater(report["fetched"], 0)
        self.assertLess(report["fetched"], len(self.store.objects))
        self.assertEqual(self.store.requests("GET"), report["fetched"])

    def test_a_warm_up_of_an_unknown_bucket_is_refused(self):
        done = self.warm_up("s3://bucket/trains", CUBESHIM_RAM_KEEP="1")
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"no directory of CUBESHIM_BUCKETS shows it", done.stderr)


if __name__ == "__main__":
    unittest.main()
