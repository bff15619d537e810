"""A worker of Ray lists a directory and reads a random share of it. The test bounds how many files
are fetched that it does not read."""
import os
import random
import sys
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT), str(ROOT / "prefetch" / "python"), str(ROOT / "tests" / "preload")]
os.environ.update(PYTHONPATH=str(ROOT / "prefetch" / "python"), RAY_USAGE_STATS_ENABLED="0",
                  PYTHONDONTWRITEBYTECODE="1")

import cubeshim.ray  # noqa: E402
import ray  # noqa: E402
from bench.harness.mount import SlowMount  # noqa: E402
from cluster_servers import wait_until  # noqa: E402

BUILD = Path(os.environ["CUBESHIM_BUILD"])
FILES, SIZE, LATENCY_US, LOOKS = 600, 20_000, 300, 25


class Reader:
    def read(self, folder, order):
        """Reads the files one after another. Returns how many of the names exist and were read, and
        the files per second."""
        names = sorted(name for name in os.listdir(folder) if not name.startswith("."))
        began = time.monotonic()
        for number in order:
            with open(os.path.join(folder, names[number]), "rb") as file:
                assert len(file.read()) == SIZE
        return len(order) / (time.monotonic() - began)


class Listing(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = Path(
            cls.enterClassContext(tempfile.TemporaryDirectory(prefix="cubeshim-ray-")))
        cls.source = cls.scratch / "source"
        cls.source.mkdir()
        for number in range(FILES):
            (cls.source / f"{number:05}").write_bytes(os.urandom(SIZE))
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error",
                 object_store_memory=100 << 20)
        cls.addClassCleanup(ray.shutdown)

    def fetched(self, order, more_than=0, **settings):
        """Returns the number of opens at the origin when it has stopped growing. On a busy machine,
        it can pause before."""
        memory = self.enterContext(tempfile.TemporaryDirectory(dir="/dev/shm"))
        mount = self.enterContext(SlowMount(BUILD / "lagfs", self.source, self.scratch, LATENCY_US))
        environment = cubeshim.ray.env(mount.path, library=BUILD / "libcubeshim.so", ram="256M",
                                       ram_dir=memory, **settings)
        reader = ray.remote(Reader).options(runtime_env=environment).remote()
        self.assertGreater(ray.get(reader.read.remote(str(mount.path), order)), 0)
        seen = []

        def is_settled():
            seen.append(mount.on_data("open"))
            return len(seen) >= LOOKS and len(set(seen[-LOOKS:])) == 1 and seen[-1] > more_than

        wait_until(is_settled, "fetching comes to its end")
        ray.kill(reader)
        return seen[-1]

    def test_a_share_that_is_read_at_random_has_twice_as_much_fetched(self):
        opened = FILES // 5
        order = random.Random(1).sample(range(FILES), opened)
        self.assertEqual(self.fetched(order, prefetch=False), opened)
        # Something is fetched ahead.
        fetched = self.fetched(order, more_than=opened * 3 // 2)
        self.assertLessEqual(fetched, 3 * opened + LOOKS, "not the directory")

    def test_the_first_files_by_name_have_four_times_as_much_fetched(self):
        opened = FILES // 10
        fetched = self.fetched(list(range(opened)), more_than=3 * opened)
        self.assertLessEqual(fetched, 5 * opened + LOOKS)


if __name__ == "__main__":
    unittest.main()
