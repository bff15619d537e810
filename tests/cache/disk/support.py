"""Jobs that read all files of a slow mount, with a disk that outlives them."""
import ctypes
import importlib.util
import json
import mmap
import os
import pathlib
import resource
import select
import signal
import struct
import subprocess
import sys
import time

_path = pathlib.Path(__file__).parents[2] / "hostile" / "crash" / "support.py"
_spec = importlib.util.spec_from_file_location("crash_support", _path)
crash = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(crash)

PATIENCE_S = 60
FILES = 80
SIZES = [0, 1, 100, 4096, 5000, 32768, 65537, 200000, 300, 40000]

# Reads all files, prints how many are right, and ends at the end of its stdin. For each line on
# stdin, it reads all files again.
READER = """
import sys, zlib
sums = dict(line.split() for line in open(sys.argv[2]))
def read_all():
    right = 0
    for name, crc in sums.items():
        try:
            with open(f'{sys.argv[1]}/{name}', 'rb') as f: right += zlib.crc32(f.read()) == int(crc)
        except OSError: pass
    print(right, flush=True)
read_all()
for line in sys.stdin:
    # Reports to the cache that a file has changed, without a change.
    for name in line.split(): open(f'{sys.argv[1]}/{name}', 'r+b').close()
    read_all()
"""


class Writes:
    """Counts the files of a directory that were written to and closed."""
    _CLOSE_WRITE = 8
    _libc = ctypes.CDLL(None, use_errno=True)

    def __init__(self, directory):
        self.fd = self._libc.inotify_init1(os.O_CLOEXEC)
        if self.fd < 0 or self._libc.inotify_add_watch(self.fd, os.fsencode(directory),
                                                       self._CLOSE_WRITE) < 0:
            raise OSError(ctypes.get_errno(), f"inotify of {directory}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.fd)

    def wait(self, seconds):
        if not select.select([self.fd], [], [], seconds)[0]:
            return False
        os.read(self.fd, 1 << 16)
        return True


class DiskCase(crash.FaultCase):
    size = None  # the size of each file, if not one of SIZES

    def setUp(self):
        super().setUp()
        self.origin = self.mount("--attr-timeout=1000", "--entry-timeout=1000")
        self.work = self.temporary()
        self.disk = self.make_disk()
        (self.work / "reader.py").write_text(READER)
        self.files = {}
        for n in range(FILES):
            self.put(n)
        self.report = self.work / "report.json"

    def make_disk(self):
        directory = self.work / "disk"
        directory.mkdir()
        return directory

    def put(self, n, generation=0, modified=None):
        size = self.size or SIZES[n % len(SIZES)]
        data = crash.content(generation, size + 8)[8 * (generation % 2):][:size]
        self.origin.put(f"f{n}", data)
        # Makes the files old, which is the common case: new files are checked twice.
        os.utime(self.origin.source(f"f{n}"),
                 (1_600_000_000 + (generation if modified is None else modified),) * 2)
        self.files[f"f{n}"] = crash.zlib.crc32(data)
        (self.work / "sums").write_text("".join(
            f"{name} {crc}\n" for name, crc in self.files.items()))

    @property
    def cache_directory(self):
        return self.disk / f"cubeshim-{crash.UID}-{self.name}"

    def environment(self, **more):
        values = {
            "PREFIXES": self.origin.root, "NAME": self.name, "RAM": "64M", "DISK_DIR": self.disk,
            "STATS": self.report, "STATS_FORMAT": "json", "PREFETCH": 0
        } | more
        return {"PATH": "/usr/bin:/bin", "LD_PRELOAD": crash.LIBRARY
               } | {f"CUBESHIM_{k}": str(v) for k, v in values.items()}

    def start(self, limit=resource.RLIM_INFINITY, **more):
        """Starts a job, which reads all files. Returns the process, and how many files were
        right."""
        self.errors = open(self.work / "stderr", "w+")
        self.addCleanup(self.errors.close)
        self.report.unlink(missing_ok=True)
        job = subprocess.Popen(
            ["/usr/bin/python3", self.work / "reader.py", self.origin.root, self.work / "sums"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
            env=self.environment(**more), text=True, bufsize=1,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE,
                                                  (limit, resource.RLIM_INFINITY)))
        self.addCleanup(self.end, job)
        return job, int(job.stdout.readline() or -1)

    def again(self, job):
        job.stdin.write("\n")
        job.stdin.flush()
        return int(job.stdout.readline() or -1)

    def change(self, job, count):
        job.stdin.write(" ".join(f"f{n}" for n in range(count)) + "\n")
        job.stdin.flush()
        return int(job.stdout.readline() or -1)

    def read_until_told(self, job):
        """Reads until a warning appears, because the thread that writes to the disk can start
        late."""
        deadline = time.monotonic() + PATIENCE_S
        while not self.complaints() and time.monotonic() < deadline:
            self.assertEqual(self.again(job), FILES)

    def end(self, job, by=None):
        if job.poll() is None:
            if by is not None:
                job.send_signal(by)
            job.stdin.close()
            job.wait(PATIENCE_S)
            job.stdout.close()
        return job.returncode

    def kill(self, job):
        """Kills the job and removes its memory."""
        self.end(job, signal.SIGKILL)
        pathlib.Path(self.region).unlink(missing_ok=True)

    def run_job(self, **more):
        """Returns how many files were right, the report, and the lines on stderr."""
        job, right = self.start(**more)
        self.assertEqual(self.end(job), 0)
        self.tried()
        return right, json.loads(self.report.read_text()), self.complaints()

    def complaints(self):
        return (self.work / "stderr").read_text().splitlines()

    def entries(self):
        """Returns the number of records in the index: the sum over its rows (doc/FORMAT.md
        "Disk")."""
        try:
            with open(self.cache_directory / "index", "rb", buffering=0) as index:
                (row_count,) = struct.unpack_from("<I", index.read(4096), 24)
                table = index.read(64 * row_count)
        except FileNotFoundError:
            return 0
        rows = [struct.unpack_from("<IIQQIIII", table, 64 * i) for i in range(row_count)]
        return sum(
            records - dropped for state, _, _, _, _, _, records, dropped in rows if state != 0)

    def segments(self):
        return self.cache_directory.glob("segment-*")

    def drop_segments(self):
        """Drops the segments' pages from the page cache."""
        for path in self.segments():
            with open(path, "rb", buffering=0) as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def segment_pages(self):
        """Returns how many pages of the segments are in the page cache."""
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        pages = 0
        for path in self.segments():
            with open(path, "rb", buffering=0) as file:
                size = ctypes.c_size_t(os.fstat(file.fileno()).st_size)
                at = ctypes.c_void_p(
                    libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(),
                              ctypes.c_long(0)))
            there = (ctypes.c_ubyte * (size.value // mmap.PAGESIZE + 1))()
            self.assertEqual(libc.mincore(at, size, there), 0)
            libc.munmap(at, size)
            pages += sum(page & 1 for page in there)
        return pages

    def wait_for_disk(self, job, entries):
        """Waits until this many entries are on the disk. An entry appears in the index just after a
        write, and the kernel reports the write. If there is no write for a second, reports a file
        as changed, so that it is read and written again."""
        # With SCHED_BATCH, the kernel does not run this process instead of the writer just before
        # the writer publishes its records.
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        deadline = time.monotonic() + PATIENCE_S
        with Writes(self.cache_directory) as writes:
            while self.entries() < entries:
                if time.monotonic() > deadline:
                    self.fail(
                        f"not {entries} files on the disk: {self.entries()}, {self.complaints()}")
                # A change while the record is about to be published would remove it again.
                if not writes.wait(1) and self.entries() < entries:
                    self.change(job, 1)

    def counters(self):
        """Returns the operations on data files since the last call of reset()."""
        with open(self.origin.root / ".lagfs/counters.json", "rb", buffering=0) as file:
            counters = json.loads(file.read(1 << 16))
        return {
            op: count["data_files"]
            for op, count in counters.items()
            if isinstance(count, dict) and "data_files" in count
        }

    def reset(self):
        with open(self.origin.root / ".lagfs/reset", "wb", buffering=0) as file:
            file.write(b"1")
        # Drops the kernel's page cache of the mount, so that reads can reach the origin.
        self.origin.unmount()
        self.origin.start()
