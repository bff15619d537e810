"""Shared by the tests of interrupted programs."""
import importlib.util
import itertools
import json
import os
import pathlib
import subprocess

_path = pathlib.Path(__file__).parents[1] / "crash" / "support.py"
_spec = importlib.util.spec_from_file_location("crash_support", _path)
crash = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(crash)

PROGRAM = str(crash.BUILD / "tests/hostile/interrupted/interrupted_program")
FAKER = str(crash.BUILD / "tests/hostile/interrupted/libinterrupted_faker.so")
COMMAND = str(crash.BUILD / "cubeshim")
GATEWAY = str(crash.BUILD / "tests/bucket/fake_gateway")
PATIENCE_S = 120
# The sizes of tests/support/preload_content.h.
SIZES = [0, 1, 100, 4096, 5000, 32768, 65537, 200000, 300, 700]


def content(number):
    size = SIZES[number % len(SIZES)]
    return bytes((i * 31 + number * 7 + (i >> 8)) & 255 for i in range(size))


class Case(crash.FaultCase):
    def setUp(self):
        super().setUp()
        self.work = self.temporary()
        self.report = self.work / "report.json"
        self.more_variables = {}
        self.numbers = itertools.count()

    def write_files(self, directory, count):
        directory.mkdir(parents=True, exist_ok=True)
        for n in range(count):
            (directory / f"f{n}").write_bytes(content(n))
            # Makes the files old, which is the common case: new files are checked twice.
            os.utime(directory / f"f{n}", (1_600_000_000, 1_600_000_000))
        return directory

    def environment(self, **more):
        values = {"NAME": self.name, "RAM": "64M", "STATS": self.report, "STATS_FORMAT": "json"
                 } | more
        preload = values.pop("PRELOAD", crash.LIBRARY)
        settings = {f"CUBESHIM_{key}": str(value) for key, value in values.items()}
        return {"PATH": "/usr/bin:/bin", "LANG": "C"
               } | ({"LD_PRELOAD": preload} if preload else {}) | self.more_variables | settings

    def bucket(self, count, fault=""):
        """Returns the prefix of a bucket with `count` files, and the settings for it. The tests'
        own gateway serves it and logs its requests."""
        self.write_files(self.work / "store", count)
        prefix, self.requests = self.work / "bucket", self.work / "requests"
        self.more_variables = {
            "AWS_TEST_ROOT": str(self.work), "AWS_TEST_LOG": str(self.requests),
            "AWS_TEST_FAULT": fault
        }
        # The gateway keeps this region for a moment, and then removes it.
        name = f"{self.name}-b{next(self.numbers)}"
        return prefix, {"BUCKETS": f"{prefix}=s3://store", "COMMAND": GATEWAY, "NAME": name}

    def run_program(self, *arguments, **more):
        done = subprocess.run([PROGRAM, *map(str, arguments)], env=self.environment(**more),
                              capture_output=True, text=True, timeout=PATIENCE_S)
        self.tried()
        return done

    def start_program(self, *arguments, **more):
        job = subprocess.Popen([PROGRAM, *map(str, arguments)], env=self.environment(**more),
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.addCleanup(job.stdout.close)
        self.addCleanup(job.wait)
        self.addCleanup(job.kill)
        return job

    def last_report(self):
        # The file has one object per line; the last line is returned.
        return json.loads(self.report.read_text().splitlines()[-1])
