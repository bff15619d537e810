"""Tests of cubeshim.ray without Ray: the environment for workers, homes of indices, assembled
batches, and torch's loader."""
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[3] / "prefetch" / "python"
sys.path.insert(0, str(PACKAGE))

from cubeshim import ray  # noqa: E402
from cubeshim.ray import _env, _homes  # noqa: E402

LIBRARY = "/opt/lib/libcubeshim.so"
DEFINITIONS = Path(__file__).resolve().parents[3] / "cache/base/settings/config.def"


def variables(*prefixes, **more):
    return ray.env(*prefixes, library=LIBRARY, **more)["env_vars"]


class Env(unittest.TestCase):
    def test_settings(self):
        self.assertEqual(
            variables("/data"), {
                "CUBESHIM_PREFIXES": "/data", "LD_PRELOAD": LIBRARY, "CUBESHIM_RAM_KEEP": "1",
                "CUBESHIM_STATS": "off"
            })
        found = variables(["/a", Path("/b")], ram="8G", prefetch=False, prefetch_depth=3,
                          disk_dir=Path("/nvme"), ram_keep=0, stats="stderr")
        self.assertEqual(
            found, {
                "CUBESHIM_PREFIXES": "/a:/b", "LD_PRELOAD": LIBRARY, "CUBESHIM_RAM": "8G",
                "CUBESHIM_PREFETCH": "0", "CUBESHIM_PREFETCH_DEPTH": "3",
                "CUBESHIM_DISK_DIR": "/nvme", "CUBESHIM_RAM_KEEP": "0", "CUBESHIM_STATS": "stderr"
            })
        self.assertEqual(variables([], packs="/p=/f")["CUBESHIM_PACKS"], "/p=/f")

    def test_entries_of_the_program_stay(self):
        own = {
            "working_dir": ".", "env_vars": {
                "A": "1", "LD_PRELOAD": f"/x/libcubeshim.so /y.so:{LIBRARY}", "CUBESHIM_RAM": "1G",
                "CUBESHIM_RAM_KEEP": "0"
            }
        }
        before = repr(own)
        found = ray.env("/data", library=LIBRARY, runtime_env=own, ram="1G")
        self.assertEqual(
            found, {
                "working_dir": ".", "env_vars": {
                    "A": "1", "LD_PRELOAD": f"{LIBRARY}:/y.so", "CUBESHIM_RAM": "1G",
                    "CUBESHIM_RAM_KEEP": "0", "CUBESHIM_STATS": "off", "CUBESHIM_PREFIXES": "/data"
                }
            })
        self.assertEqual(repr(own), before)

    def test_wrong_input_is_reported_in_one_line(self):
        rows = [(ValueError, "'data' is not a prefix", ("data",), {}),
                (ValueError, "'/' is not a prefix", ("/",), {}),
                (ValueError, "'/a/../b' is not a prefix", (["/x", "/a/../b"],), {}),
                (ValueError, "'/a:b' is not a prefix", ("/a:b",), {}),
                (ValueError, "nothing to cache", ([],), {}),
                (TypeError, "'rams' is not a setting", ("/a",), {"rams": 1}),
                (TypeError, "ram=None: a setting is", ("/a",), {"ram": None}),
                (TypeError, "ram='1.n2': a setting is", ("/a",), {"ram": "1\n2"}),
                (ValueError, "CUBESHIM_RAM is '2G' in runtime_env and '1G' here", ("/a",),
                 {"ram": "1G", "runtime_env": {"env_vars": {"CUBESHIM_RAM": "2G"}}}),
                (ValueError, "library='x.so': it takes the absolute path", ("/a",),
                 {"library": "x.so"})]
        for kind, text, words, more in rows:
            with self.subTest(text), self.assertRaisesRegex(kind, text) as caught:
                ray.env(*words, **{"library": LIBRARY, **more})
            self.assertNotIn("\n", str(caught.exception))

    def test_the_library_of_this_process_or_package(self):
        with tempfile.TemporaryDirectory() as name:
            library = Path(name) / "libcubeshim.so"
            library.touch()
            code = "import cubeshim.ray; print(cubeshim.ray.env('/a')['env_vars']['LD_PRELOAD'])"

            def run(package, **more):
                return subprocess.run([sys.executable, "-c", code], env={
                    "PYTHONPATH": str(package), "PYTHONDONTWRITEBYTECODE": "1", **more
                }, capture_output=True, text=True)

            # The dynamic loader reports that it cannot preload an empty file.
            self.assertEqual(run(PACKAGE, LD_PRELOAD=str(library)).stdout, f"{library}\n")
            missing = run(PACKAGE).stderr.splitlines()[-1]
            self.assertEqual(
                missing,
                "ValueError: libcubeshim.so did not come with this package: library= takes its "
                "path, which is the same on all nodes"
            )
            # The layouts of a wheel and of `make install`.
            for package, at in (("wheel", "wheel/cubeshim/prefix/lib64"), ("share/cubeshim/python",
                                                                           "lib")):
                (Path(name) / package).mkdir(parents=True)
                (Path(name) / at).mkdir(parents=True, exist_ok=True)
                subprocess.run(["cp", "-r", PACKAGE / "cubeshim", Path(name) / package], check=True)
                library.replace(Path(name) / at / "libcubeshim.so")
                library.touch()
                self.assertEqual(
                    run(Path(name) / package).stdout, f"{Path(name) / at}/libcubeshim.so\n")

    def test_all_settings_are_known(self):
        words = DEFINITIONS.read_text().split('"')
        names = {
            word[len("CUBESHIM_"):].lower()
            for word in words
            if re.fullmatch("CUBESHIM_[A-Z0-9_]+", word)
        } - {"prefixes"}
        self.assertGreater(len(names), 20)
        self.assertEqual(names - _env.SETTINGS, set())


class Homes(unittest.TestCase):
    nodes = [_homes.hash_of(b"node %d" % number) for number in range(5)]

    def test_a_batch_is_taken_apart_and_put_together(self):
        homes = _homes.Homes()
        indices = [7, 3, 3, 99, -1, "a", (1, 2), 50]
        for count in (1, 2, 5):
            split = homes.split(indices, self.nodes[:count])
            self.assertLessEqual(len(split), count)
            self.assertEqual(len({node for node, _ in split}), len(split))
            parts = [(positions, [indices[at] for at in positions]) for _, positions in split]
            self.assertEqual(_homes.join(parts, len(indices)), indices)
            for node, positions in split:
                self.assertEqual({homes.home(indices[at], self.nodes[:count]) for at in positions},
                                 {node})

    def test_shares_are_even_and_only_a_lost_nodes_moves(self):
        homes = _homes.Homes()
        before = [homes.home(index, self.nodes) for index in range(5000)]
        for node in self.nodes:
            self.assertAlmostEqual(before.count(node), 1000, delta=120)
        after = [homes.home(index, self.nodes[1:]) for index in range(5000)]
        for old, new in zip(before, after):
            self.assertTrue(old == new or old == self.nodes[0])

    def test_a_home_is_the_files(self):
        """An index has the same home regardless of its type, and after the data set has grown."""
        paths = [f"/data/{number}.jpg" for number in range(100)]
        old, new = _homes.Homes(lambda index: [paths[index], "/labels"]), _homes.Homes(
            lambda index: [(["/data/new"] + paths)[index]])
        for index in range(100):
            self.assertEqual(old.home(index, self.nodes), new.home(index + 1, self.nodes))
        import numpy
        import torch
        plain = _homes.Homes()
        for index in range(100):
            self.assertEqual(
                {plain.home(kind(index), self.nodes) for kind in (int, numpy.int64, torch.tensor)},
                {plain.home(index, self.nodes)})

    def test_a_dataset_whose_paths_fail(self):
        failing, empty = _homes.Homes(lambda index: [][index]), _homes.Homes(lambda index: [])
        for homes in (failing, empty):
            self.assertEqual(homes.home(4, self.nodes), _homes.Homes().home(4, self.nodes))


class Without(unittest.TestCase):
    def test_loader_is_that_of_torch(self):
        """The system's Python has no Ray. test_ray_same.py tests a Python that has Ray but does not
        use it."""
        code = (
            "import sys\nfrom torch.utils.data import DataLoader\n"
            "from cubeshim.ray import DataLoader as Ours\n"
            "loader = Ours(list(range(9)), batch_size=4, num_workers=1)\n"
            "assert isinstance(loader, DataLoader) and 'ray' not in sys.modules\n"
            "print([batch.tolist() for batch in loader], len(loader), type(iter(loader)).__name__)")
        done = subprocess.run(["/usr/bin/python3", "-c", code], capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": str(PACKAGE)})
        self.assertEqual(done.stdout,
                         "[[0, 1, 2, 3], [4, 5, 6, 7], [8]] 3 _MultiProcessingDataLoaderIter\n",
                         done.stderr)

    def test_nothing_is_imported_before_it_is_asked_for(self):
        code = (
            "import sys, cubeshim.ray\nassert not {'torch', 'ray', 'numpy'} & set(sys.modules)\n"
            "try:\n    cubeshim.ray.Other\nexcept AttributeError as error:\n    print(error)")
        done = subprocess.run(["/usr/bin/python3", "-c", code], capture_output=True, text=True,
                              env={"PYTHONPATH": str(PACKAGE)})
        self.assertEqual(done.stdout, "module 'cubeshim.ray' has no attribute 'Other'\n",
                         done.stderr)


if __name__ == "__main__":
    unittest.main()
