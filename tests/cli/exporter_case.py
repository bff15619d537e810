"""A running `cubeshim exporter` and its answers, for its tests. The caches are in a directory of
the test."""
import os
import re
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

from cli_case import Case

SAMPLE = re.compile(r'^(\w+)(?:\{(.*)\})? (\S+)$')
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
DEADLINE_S = 60


def samples_of(text):
    """Returns {name: {labels: value}}; labels are a sorted tuple of "name=value". Fails for a line
    that is not a sample, and for a duplicate."""
    found = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        name, labels, value = SAMPLE.match(line).groups()
        key = tuple(sorted(f"{label}={of_it}" for label, of_it in LABEL.findall(labels or "")))
        of_name = found.setdefault(name, {})
        assert key not in of_name, line
        of_name[key] = float(value)
    return found


def until(condition, what):
    end = time.monotonic() + DEADLINE_S
    while not (found := condition()):
        assert time.monotonic() < end, what
        time.sleep(0.01)
    return found


class Exporter:
    """A running exporter that answers scrapes."""
    def __init__(self, test, *words):
        self.errors = Path(tempfile.mkstemp(dir=test.data.parent)[1])
        with self.errors.open("w") as errors:
            self.child = test.start("exporter", "--listen", "127.0.0.1:0", "--ram-dir",
                                    test.ram_dir, *words, stdout=subprocess.PIPE, stderr=errors)
        self.url = self.child.stdout.readline().decode().strip()
        assert self.url, self.errors.read_text()
        self.port = int(re.search(r":(\d+)/metrics$", self.url)[1])

    def text(self):
        with urllib.request.urlopen(self.url, timeout=DEADLINE_S) as answer:
            return answer.read().decode()

    def scrape(self):
        return samples_of(self.text())


class ExporterCase(Case):
    def setUp(self):
        super().setUp()
        made = tempfile.TemporaryDirectory(dir="/dev/shm", prefix="cubeshim-test-")
        self.addCleanup(made.cleanup)
        self.ram_dir = Path(made.name)
        self.region = self.region_of(self.name)

    def region_of(self, name):
        return self.ram_dir / f"cubeshim-{os.geteuid()}-{name}"

    def job_words(self, *words, options=(), name=None):
        return [
            "run", "-p", self.data, "--name", name or self.name, "--ram-dir", self.ram_dir, "--ram",
            "32M", "--stats", "off", *options, *words
        ]

    def kept_region(self, name=None, **more):
        done = self.command(
            *self.job_words("cat", self.file, options=["--ram-keep", "1"], name=name), **more)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        return self.region_of(name or self.name)

    def start_job(self, script="read line", name=None, options=()):
        """Starts a shell that has opened a file and continues on request."""
        job = self.start(
            *self.job_words("bash", "-c", f"exec 3<{self.file}; echo ready; read line; {script}",
                            name=name, options=options), stdin=subprocess.PIPE,
            stdout=subprocess.PIPE)
        self.assertEqual(job.stdout.readline(), b"ready\n")
        return job

    def go_on(self, job):
        job.stdin.write(b"go\n")
        job.stdin.flush()

    def textfile(self, *words, **more):
        done = self.command("exporter", "--textfile", "-", "--once", "--ram-dir", self.ram_dir,
                            *words, **more)
        return done, samples_of(done.stdout.decode())
