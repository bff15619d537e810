#!/usr/bin/python3
"""A pack is damaged while programs read from it. Each answer must be right or an error, and a
program must never die or hang.

A reader checks every answer against the packed files. At the same time, this script flips bytes,
fills ranges with zeros, or cuts the pack short. Some cases use a shared mapping on a tmpfs for
this, so that the times of the file do not change and only the hashes reveal the damage. A second
job then reads the data that the first job has left in memory or on the disk.

    CUBESHIM_BUILD=build tests/hostile/crash/test_pack.py [--seconds N] [--seed N]

--seconds runs new cases for that long; otherwise there is one round of each kind.
"""
import argparse
import collections
import contextlib
import errno
import itertools
import json
import mmap
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import zlib

BUILD = pathlib.Path(os.environ["CUBESHIM_BUILD"])
LIBRARY = os.environ.get("PRELOAD_LIBRARY", str(BUILD / "libcubeshim.so"))
HANG_S = 60
FILES, DIRECTORIES = 240, 8
WAYS = ("mapped", "mapped_index", "mapped_zeros", "kept", "written", "cut", "before",
        "before_index")

READER = r"""
import collections, json, mmap, os, random, sys, zlib
prefix, table = sys.argv[1], json.load(open(sys.argv[2]))
seed, count = int(sys.argv[3]), int(sys.argv[4])
rnd = random.Random(seed)
said = collections.Counter()
wrong = []
def crc(data): return [len(data), zlib.crc32(data)]
def whole(path):
    with open(path, "rb") as file: return crc(file.read())
def parts(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        data = b""
        while part := os.pread(fd, 5000, len(data)): data += part
        return crc(data)
    finally: os.close(fd)
def mapped(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(fd).st_size
        if size == 0: return crc(b"")
        with mmap.mmap(fd, size, prot=mmap.PROT_READ) as memory: return crc(memory[:])
    finally: os.close(fd)
def size(path): return [os.stat(path).st_size, None]
names = sorted(table["files"])
for n in range(count):
    if n % 100 == 0: print("at", n, flush=True)
    kind = rnd.randrange(12)
    try:
        if kind < 9:
            name = rnd.choice(names)
            expected = table["files"][name]
            got = (whole, parts, mapped, whole, size)[kind % 5](prefix + "/" + name)
            right = got == expected or (got[1] is None and got[0] == expected[0])
        elif kind == 9:
            name = rnd.choice(sorted(table["directories"]))
            got, expected = sorted(os.listdir(prefix + "/" + name)), table["directories"][name]
            right = got == expected
        elif kind == 10:
            name = "link"
            got, expected = os.readlink(prefix + "/link"), table["link"]
            right = got == expected
        else:
            name = "no such"
            got, expected = os.path.lexists(prefix + "/d0/none"), False
            right = got == expected
    except OSError as error:
        said[str(error.errno)] += 1
        continue
    said["right" if right else "wrong"] += 1
    if not right: wrong.append([kind, name, str(got)[:200], str(expected)[:200]])
print(json.dumps({"said": said, "wrong": wrong[:3]}), flush=True)
"""


class Campaign:
    def __init__(self, work, seed):
        self.work, self.random = work, random.Random(seed)
        self.prefix = work / "data"
        self.pack, self.table = work / "set.cube", work / "table"
        self.totals, self.failures = collections.Counter(), []
        self.numbers = itertools.count()
        self.make_pack()

    def make_pack(self):
        files, directories = {}, {"": sorted([f"d{i}" for i in range(DIRECTORIES)] + ["link"])}
        for d in range(DIRECTORIES):
            (self.prefix / f"d{d}").mkdir(parents=True)
            directories[f"d{d}"] = sorted(f"f{i}" for i in range(d, FILES, DIRECTORIES))
        for i in range(FILES):
            size = self.random.choice(
                (0, 1, 300, 5_000, 40_000, 200_000)) * self.random.randrange(50, 150) // 100
            data, name = self.random.randbytes(size), f"d{i % DIRECTORIES}/f{i}"
            (self.prefix / name).write_bytes(data)
            files[name] = [len(data), zlib.crc32(data)]
        os.symlink("d0/f0", self.prefix / "link")
        self.table.write_text(
            json.dumps({"files": files, "directories": directories, "link": "d0/f0"}))
        subprocess.run([BUILD / "cubeshim", "pack", "-q", self.prefix, self.pack], check=True,
                       stdout=subprocess.DEVNULL)
        shutil.rmtree(self.prefix)
        self.whole = self.pack.read_bytes()
        # PackHeader::index_begin.
        self.index_begin = struct.unpack_from("<Q", self.whole, 40)[0]

    def settings(self, name):
        values = {
            "PACKS": f"{self.prefix}={self.pack}", "NAME": name, "RAM": "8M", "RAM_DIR": self.work,
            "STATS": "off", "RAM_KEEP": "1", "PREFETCH": self.random.choice("01"),
            "MODE": self.random.choice(("virtual", "virtual", "real"))
        }
        if self.random.random() < 0.4:
            (self.work / "disk").mkdir(exist_ok=True)
            values |= {"DISK_DIR": self.work / "disk", "DISK": "64M"}
        environment = {"PATH": "/usr/bin:/bin", "LANG": "C", "LD_PRELOAD": LIBRARY}
        return environment | {f"CUBESHIM_{key}": str(value) for key, value in values.items()}

    def place(self, way):
        if way.endswith("index") and self.random.random() < 0.9:
            return self.random.randrange(self.index_begin, len(self.whole))
        return self.random.randrange(len(
            self.whole)) if self.random.random() < 0.95 else self.random.randrange(256)

    def flip(self, way, store):
        for _ in range(self.random.choice((1, 1, 3, 30))):
            at = self.place(way)
            if way == "mapped_zeros":
                store(at,
                      bytes(min(self.random.choice((8, 500, 4096, 20_000)),
                                len(self.whole) - at)))
            else:
                store(at, bytes([self.whole[at] ^ 1 << self.random.randrange(8)]))

    @contextlib.contextmanager
    def stores(self, way):
        """Yields a function that writes to the pack."""
        before = os.stat(self.pack)
        with open(self.pack, "r+b", buffering=0) as file:
            if not way.startswith("mapped"):

                def write(at, data):
                    os.pwrite(file.fileno(), data, at)
                    if way == "kept":
                        os.utime(self.pack, ns=(before.st_atime_ns, before.st_mtime_ns))

                yield write
                return
            with mmap.mmap(file.fileno(), len(self.whole)) as memory:

                def store(at, data):
                    memory[at:at + len(data)] = data

                # The first store to a page changes the times of the file, so each page is written
                # before the reader starts.
                store(0, self.whole)
                yield store

    def harm(self, way, reader, store):
        """Damages the pack again and again, until the reader has reported."""
        for line in reader.stdout:
            if not line.startswith("at"):
                return json.loads(line)
            if way == "cut":
                os.truncate(self.pack, self.random.randrange(len(self.whole)))
            elif not way.startswith("before"):
                self.flip(way, store)
                if self.random.random() < 0.2 and way.startswith("mapped"):
                    store(0, self.whole)
        return None

    def start(self, environment, reads):
        errors = tempfile.TemporaryFile()
        arguments = [
            sys.executable, "-c", READER, self.prefix, self.table,
            str(self.random.randrange(1 << 30)),
            str(reads)
        ]
        reader = subprocess.Popen(
            ["timeout", "-s", "KILL", str(HANG_S), *arguments], env=environment,
            stdout=subprocess.PIPE, stderr=errors, text=True)
        return reader, errors

    def judge(self, what, reader, errors, answer):
        status = reader.wait()
        errors.seek(0)
        lines = errors.read().decode(errors="replace").splitlines()
        self.totals.update((answer or {}).get("said", {}))
        problems = []
        if status != 0 or answer is None:
            problems.append(f"the reader ended with {status}")
        elif answer["wrong"]:
            problems.append(f"wrong: {answer['wrong']}")
        # Reads of a damaged pack fail with EIO. A damaged index can also lack a name, and a refused
        # pack has no names.
        odd = set((answer or {}).get("said", {})) - {
            "right", "wrong", str(errno.EIO), str(errno.ENOENT)
        }
        if odd:
            problems.append(f"errors {odd}")
        if len(lines) != len(set(lines)) or len(lines) > 3 or any(
                not line.startswith("cubeshim: ") for line in lines):
            problems.append("not one clear line")
        if str(errno.EIO) in (answer or {}).get("said", {}) and not lines:
            problems.append("EIO without a line")
        if problems:
            self.failures.append(what)
            print(what, *problems, *lines[:20], sep="\n    ", flush=True)

    def case(self, way):
        self.pack.write_bytes(self.whole)
        number = next(self.numbers)
        environment = self.settings(f"hostile-{number}")
        with self.stores(way) as store:
            if way.startswith("before"):
                self.flip(way, store)
            reader, errors = self.start(environment, 900)
            self.judge(f"case {number}, {way}, first job", reader, errors,
                       self.harm(way, reader, store))
        # Reads the data that the first job has left in memory and on the disk.
        reader, errors = self.start(environment, 300)
        self.judge(f"case {number}, {way}, second job", reader, errors,
                   self.harm("before", reader, None))
        self.totals["cases"] += 1
        for left in self.work.glob("cubeshim-*"):
            left.unlink()
        shutil.rmtree(self.work / "disk", ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--way", choices=WAYS, action="append")
    options = parser.parse_args()
    work = pathlib.Path(tempfile.mkdtemp(prefix="cubeshim-hostile-", dir="/dev/shm"))
    try:
        campaign = Campaign(work, options.seed)
        end = time.monotonic() + options.seconds
        for way in itertools.chain.from_iterable(itertools.repeat(options.way or WAYS)):
            campaign.case(way)
            if campaign.totals["cases"] >= len(options.way or WAYS) and time.monotonic() >= end:
                break
    finally:
        shutil.rmtree(work)
    said = ", ".join(f"{errno.errorcode.get(int(key), key) if key.isdigit() else key} {n}"
                     for key, n in campaign.totals.items())
    print(f"{said}, failed {len(campaign.failures)}")
    return 1 if campaign.failures or campaign.totals["right"] < 100 else 0


sys.exit(main())
