"""Data sets about which nothing is known: under the library, their workers learn which files an
index needs."""
import fcntl
import json
import os
import subprocess
import sys
import types
import unittest
import unittest.mock

from support import *  # noqa: F403
from cubeshim import _learned, _learning, _socket
from cubeshim._learned import Known, Store, key_of
from pathlib import Path

LIBRARY = Path(os.environ["CUBESHIM_BUILD"]) / "libcubeshim.so"
COUNT = 60

# The library keeps the name with which it began. This process finds its server, and the learned
# paths, under another name.
JOB = """
import json, os, sys
os.environ.update(CUBESHIM_NAME="test", **eval(sys.argv[2]))
import numpy
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset
DATA, COUNT = os.environ["CUBESHIM_PREFIXES"], 60
class Items(Dataset):
    def __init__(self, root):
        self.root = root
    def __len__(self):
        return COUNT
    def __getitem__(self, index):
        assert type(self) is Items
        if index % 2:
            open(f"{self.root}/../{os.path.basename(self.root)}/label{index * 7 % COUNT}").close()
        assert numpy.fromfile(f"{self.root}/f{index * 7 % COUNT}", "u1").size == 100
        return index
def collate(batch):
    open(DATA + "/other").close()
    return batch
def wait():
    print("ready", flush=True)
    sys.stdin.readline()
if __name__ == "__main__":
    data = Items(DATA)
    more = eval(sys.argv[1])
    data = more.pop("of", lambda data: data)(data)
    loader = DataLoader(data, batch_size=more.pop("batch_size", 6), shuffle=True,
                        collate_fn=collate, **more)
    for epoch in range(2):
        iterator = iter(loader)
        order = [next(iterator)]
        wait()
        order += list(iterator)
        print(json.dumps(order), flush=True)
"""


def paths_of(data, index):
    """Returns the paths of an item in the order in which JOB opens them."""
    return [f"{data}/label{index * 7 % COUNT}"] * (index % 2) + [f"{data}/f{index * 7 % COUNT}"]


class Jobs(Case):
    def setUp(self):
        super().setUp()
        self.data = self.dir / "data"
        self.data.mkdir()
        for i in range(COUNT):
            (self.data / f"f{i}").write_bytes(bytes(100))
            (self.data / f"label{i}").write_bytes(b"x")
        (self.data / "other").write_bytes(b"x")
        (self.dir / "job.py").write_text(JOB)
        self.env = {
            name: value for name, value in os.environ.items() if not name.startswith("CUBESHIM_")
        }
        self.env.update(LD_PRELOAD=str(LIBRARY), CUBESHIM_PREFIXES=str(self.data),
                        CUBESHIM_NAME="library", CUBESHIM_STATS="off", CUBESHIM_RAM="16M",
                        CUBESHIM_RAM_DIR=str(self.dir))

    def job(self, more="{}", **env):
        job = subprocess.Popen(["/usr/bin/python3", self.dir / "job.py", more,
                                repr(env)], env=self.env, text=True, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(job.communicate)
        self.addCleanup(job.kill)
        return job

    def go_on(self, job):
        job.stdin.write("\n")
        job.stdin.flush()
        return [
            index for batch in json.loads(job.stdout.readline())
            for index in (batch if isinstance(batch, list) else [batch])
        ]

    def ready(self, job):
        line = job.stdout.readline()
        self.assertEqual(line, "ready\n", job.stderr.read() if not line else "")

    def end(self, job):
        self.assertEqual(job.communicate(timeout=100)[1], "")
        self.assertEqual(job.returncode, 0)

    def check(self, more, name=lambda index: index, **env):
        """Checks that the second epoch's order is announced with the paths that were learned in the
        first epoch."""
        with Server(self.dir, "test") as server:
            job = self.job(more, **env)
            self.ready(job)
            first = self.go_on(job)
            self.ready(job)
            heard = server.wait_for_order(epoch=1)[-1].paths(1)
            order = self.go_on(job)
            self.end(job)
        self.assertEqual(sorted(first), sorted(order))
        self.assertEqual(heard,
                         [path for index in order for path in paths_of(self.data, name(index))])
        # The first epoch announces one path, which has been read.
        self.assertLessEqual(len([path for client in server.clients for path in client.paths(0)]),
                             2)

    def test_workers(self):
        # Spawned workers come last. They leave a region with the server's name, and the next job
        # would remove this region together with the socket.
        for more in ("{}", "dict(num_workers=2)", "dict(num_workers=2, persistent_workers=True)",
                     "dict(batch_size=None)", "dict(of=lambda data: Subset(data, range(COUNT)))",
                     "dict(num_workers=2, multiprocessing_context='spawn')"):
            with self.subTest(more):
                self.check(more)

    def test_index_is_removed_with_the_job_unless_it_is_on_disk(self):
        disk = self.dir / "disk"
        disk.mkdir()
        learned = f"cubeshim-learned-{os.geteuid()}-test"
        self.check("{}")
        self.assertFalse((self.dir / learned).exists())
        self.check("{}", CUBESHIM_DISK_DIR=str(disk))
        self.assertEqual(sorted(path.suffix for path in (disk / learned).iterdir()),
                         [".index", ".paths"])
        # A later job knows the paths from the first epoch on.
        with Server(self.dir, "test") as server:
            job = self.job(CUBESHIM_DISK_DIR=str(disk))
            self.ready(job)
            heard = server.wait_for_order()[0].paths()
            order = self.go_on(job)
            self.assertEqual(heard,
                             [path for index in order for path in paths_of(self.data, index)])

    def test_not_without_the_library_or_prefetching(self):
        for change in ({"LD_PRELOAD": ""}, {"CUBESHIM_PREFETCH": "0"}, {"CUBESHIM_MODE": "off"},
                       {"CUBESHIM_ANNOUNCE": "0"}):
            self.env.update(CUBESHIM_RAM_DIR=str(self.dir), PYTHONPATH=f"{PACKAGE / 'site'}")
            before = dict(self.env)
            self.env |= change
            job = self.job()
            self.ready(job)
            self.assertFalse(list(self.dir.glob("cubeshim-learned-*")), change)
            self.go_on(job)
            self.ready(job)
            self.go_on(job)
            self.end(job)
            self.env = before

    def test_notes_of_the_library(self):
        code = """
import ctypes, os, sys, threading
note = ctypes.CDLL(None).cubeshim_noted_opens
note.restype, note.argtypes = ctypes.c_void_p, [ctypes.POINTER(ctypes.c_size_t)]
size = ctypes.c_size_t()
def claim():
    return note(ctypes.byref(size))
data = os.environ["CUBESHIM_PREFIXES"]
room = claim()
def noted():
    return ctypes.string_at(room + 4, ctypes.c_uint32.from_address(room).value).split(b"\\0")[:-1]
os.chdir(data)
open("f1").close(); open(data + "/./f2").close(); open("/dev/null").close()
open("made", "w").close()
try: open("none")
except OSError: pass
print([os.path.basename(path.decode()) for path in noted()],
      all(os.path.isabs(path) for path in noted()))
of_others = []
thread = threading.Thread(target=lambda: (of_others.append(claim()), open("f3").close()))
thread.start(); thread.join()
print(of_others, len(noted()))
sys.stdout.flush()
child = os.fork()
if child == 0:
    thread = threading.Thread(target=lambda: (claim(), open("f4").close()))
    thread.start(); thread.join()
    print([os.path.basename(path.decode()) for path in noted()], flush=True)
    os._exit(0)
os.waitpid(child, 0)
for _ in range(20000): open("f5").close()
print(len(noted()) < 20000, set(noted()[2:]) == {(data + "/f5").encode()},
      ctypes.c_uint32.from_address(room).value < size.value)
ctypes.c_uint32.from_address(room).value = 0xffffffff
open("f6").close()
print(ctypes.c_uint32.from_address(room).value == 0xffffffff, claim() == room, noted())
"""
        done = subprocess.run(["/usr/bin/python3", "-c", code], env=self.env,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(
            (done.stdout, done.stderr),
            ("['f1', 'f2'] True\n[None] 2\n['f4']\nTrue True True\nTrue True []\n", ""))


class Stores(Case):
    def setUp(self):
        super().setUp()
        self.addCleanup(_learned._held.clear)
        self.store = self.made("0123")

    def made(self, key, length=100):
        store = Store(key, length)
        store.make()
        return store

    def file(self, kind):
        return Path(f"{self.store.base}.{kind}")

    def test_a_child_that_learns_leaves_the_files_of_its_parent(self):
        child = os.fork()
        if child == 0:
            self.made("4567")
            _learned._leave()
            os._exit(0)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertTrue(self.file("index").exists() and self.file("paths").exists())

    def test_settings_that_the_library_refuses_are_the_default(self):
        own = os.geteuid()
        for name in ("../x", "a b", "x" * 65, ""):
            os.environ.update(CUBESHIM_RAM_DIR="/ram", CUBESHIM_NAME=name, CUBESHIM_DISK_DIR="")
            self.assertEqual((_socket.path(), _learned.directory()),
                             (f"/ram/cubeshim-{own}-default.sock",
                              (f"/ram/cubeshim-learned-{own}-default", False)))
        os.environ.update(CUBESHIM_NAME="a.B-9_")
        for wrong in ("disk", "./disk", "/a/../disk", ""):
            os.environ.update(CUBESHIM_RAM_DIR=wrong, CUBESHIM_DISK_DIR=wrong)
            self.assertEqual((_socket.path(), _learned.directory()),
                             (f"/dev/shm/cubeshim-{own}-a.B-9_.sock",
                              (f"/dev/shm/cubeshim-learned-{own}-a.B-9_", False)))
        os.environ.update(CUBESHIM_DISK_DIR="/disk/")
        self.assertEqual(_learned.directory(), (f"/disk/cubeshim-learned-{own}-a.B-9_", True))

    def test_written_records_are_read(self):
        self.assertTrue(self.store.is_empty())
        self.assertEqual(2, self.store.write([(3, [b"/a", b"/b"]), (99, [b"/" + b"c" * 9000])]))
        self.assertEqual(1, self.store.write([(0, [b"/d"])]))
        self.assertEqual([self.store.resolve([i]) for i in (0, 3, 99, -1, 5)],
                         [[b"/d"], [b"/a", b"/b"], [b"/" + b"c" * 9000], [b"/" + b"c" * 9000], []])
        self.assertEqual(self.store.resolve([3, 5, 100, -101, 0]), [b"/a", b"/b", b"/d"])
        self.assertEqual(self.store.first(), [b"/a", b"/b"])
        self.assertFalse(self.store.is_empty())

    def test_files_drawn_at_random_are_not_kept(self):
        for paths, kept in (([b"/a", b"/x", b"/y"], [b"/a", b"/x", b"/y"]), ([b"/z",
                                                                              b"/a"], [b"/a"]),
                            ([b"/a", b"/w"], [b"/a"]), ([b"/other"], [b"/other"])):
            self.store.write([(7, paths)])
            self.assertEqual(self.store.resolve([7]), kept)
        size = self.file("paths").stat().st_size
        self.assertEqual(self.store.write([(7, [b"/other"])]), 0)
        self.assertEqual(self.file("paths").stat().st_size, size)

    def test_torn_files_give_no_answer(self):
        self.store.write([(i, [b"/a%d" % i]) for i in range(100)])
        whole = {kind: self.file(kind).read_bytes() for kind in ("index", "paths")}
        numbers = random.Random(5)
        for _ in range(300):
            kind = numbers.choice(list(whole))
            torn = bytearray(whole[kind])
            at = numbers.randrange(len(torn))
            torn[at:at + 8] = numbers.randbytes(8)
            self.file(kind).write_bytes(torn[:numbers.choice((len(torn), at))])
            self.assertIsInstance(self.store.resolve(range(100)), list)
            self.file(kind).write_bytes(whole[kind])
        # The record belongs to another index.
        self.file("index").write_bytes(whole["index"][8:])
        self.assertEqual(self.store.resolve([3]), [])

    def test_a_bound(self):
        _learned.MOST_BYTES, before = 100, _learned.MOST_BYTES
        self.addCleanup(setattr, _learned, "MOST_BYTES", before)
        self.store.write([(1, [b"/" + b"a" * 80])])
        self.assertRaises(OSError, self.store.write, [(2, [b"/" + b"a" * 80])])
        self.assertEqual(self.store.resolve([2]), [])

    def test_files_of_others_are_refused(self):
        self.file("index").unlink()
        self.file("index").symlink_to(self.dir / "victim")
        (self.dir / "victim").write_bytes(b"")
        self.assertRaises(OSError, self.store.write, [(1, [b"/a"])])
        self.assertEqual((self.dir / "victim").read_bytes(), b"")
        self.file("paths").unlink()
        os.mkfifo(self.file("paths"))
        self.assertRaises(OSError, Store.open, self.store, os.O_RDONLY, "paths")

    def test_a_directory_where_others_may_put_files_is_refused(self):
        """Otherwise, a link to another file of the user could cause that file to be overwritten."""
        victim, directory = self.dir / "victim", Path(self.store.base).parent
        for spoil in (lambda: directory.chmod(0o777), lambda: directory.chmod(0o770),
                      *([lambda: os.chown(directory, 65534, 65534)] if os.geteuid() == 0 else [])):
            for kind in ("index", "paths"):
                spoil()
                self.file(kind).unlink()
                victim.write_bytes(b"victim")
                os.link(victim, self.file(kind))
                self.assertRaises(OSError, self.store.write, [(1, [b"/a"])])
                self.assertRaises(OSError, Store("other", 100).make)
                self.assertEqual(victim.read_bytes(), b"victim")
                victim.unlink()
                self.file(kind).write_bytes(b"")
                os.chown(directory, os.geteuid(), -1)
                directory.chmod(0o700)
                self.assertEqual(1, self.store.write([(1, [b"/a", os.urandom(4).hex().encode()])]))

    def test_a_file_of_another_name_too_is_refused(self):
        for kind in ("index", "paths"):
            other = self.dir / "other"
            os.link(self.file(kind), other)
            self.assertRaises(OSError, self.store.write, [(1, [b"/a"])])
            other.unlink()
        self.assertEqual(1, self.store.write([(1, [b"/a"])]))

    def test_the_standard_fds_are_left_to_the_program(self):
        """The program has neither stdin nor stdout nor stderr. Bytes that C code writes there are
        lost, as without the library."""
        code = f"""
import os, sys
os.closerange(0, 3)
sys.path.insert(0, {str(PACKAGE)!r})
from cubeshim import _learned, _socket
store = _learned.Store("4567", 10)
store.make()
sockets = [_socket.new_socket(), _socket.new_socket()]
with _learned.Files(store, os.O_RDWR) as files:
    numbers = [_learned._held[store.base], files.index, files.paths,
               *(one.fileno() for one in sockets)]
    taken = [fd for fd in range(3) if os.path.exists("/proc/self/fd/%d" % fd)]
open({str(self.dir / "numbers")!r}, "w").write(repr((taken, [fd >= 3 for fd in numbers])))
"""
        subprocess.run(["/usr/bin/python3", "-c", code], check=True, timeout=100,
                       env=dict(os.environ))
        self.assertEqual((self.dir / "numbers").read_text(), repr(([], [True] * 5)))

    def test_files_that_killed_processes_left_go(self):
        left, used = self.made("left"), self.made("used")
        _learned._held.clear()  # all locks except one end with their fds
        holder = os.open(used.base + ".index", os.O_RDONLY)
        self.addCleanup(os.close, holder)
        for fd in [int(name) for name in os.listdir("/proc/self/fd")]:
            if fd != holder and os.path.realpath(f"/proc/self/fd/{fd}").endswith(".index"):
                os.close(fd)
        fcntl.flock(holder, fcntl.LOCK_SH)
        self.made("new")
        self.assertEqual([store.is_there() for store in (left, used)], [False, True])

    def test_the_key(self):
        def key(count=10, kind=Files, **attributes):
            dataset = kind(count)
            vars(dataset).update(attributes)
            return key_of(dataset)

        class Others(Files):
            pass

        self.assertEqual(key(root="/a", calls=1), key(root="/a", calls=2))
        different = [
            key(root="/a"),
            key(root="/b"),
            key(11, root="/a"),
            key(kind=Others, root="/a"),
            key(root="/a", ids=list(range(10))),
            key(root="/a", ids=list(range(1, 11))),
            key(root="/a", inner=Files(4)),
            key(root="/a", inner=Files(5))
        ]
        self.assertEqual(len(set(different)), len(different))
        self.assertIsNone(key(0))

    def test_an_epoch_that_begins_with_nothing_tells_one_path(self):
        known = Known(self.store)
        self.assertFalse(known.begin())
        self.assertEqual(known([3]), [])
        self.store.write([(8, [b"/a"]), (9, [b"/b"])])
        self.assertEqual([known([3]), known([8]), known([9])], [[b"/a"], [], []])
        self.assertTrue(known.begin())
        self.assertEqual([known([3]), known([8]), known([9])], [[], [b"/a"], [b"/b"]])


class Learners(Case):
    def setUp(self):
        super().setUp()
        self.store = types.SimpleNamespace(
            length=10, base="x", written=[],
            write=lambda learned: self.store.written.extend(learned) or self.news)
        self.learner = _learning.Learner.__new__(_learning.Learner)
        vars(self.learner).update(
            store=self.store, learned=[], looked_at=0, found=0, without_news=0, batches=0,
            is_over=False, notes=types.SimpleNamespace(clear=lambda: None,
                                                       paths=lambda: self.opened))
        self.opened, self.news = [], 1

    def test_paths_are_shared_evenly_among_the_items_of_a_batch(self):
        for index, paths, learned in (([4, 2], [b"a", b"b", b"c", b"d"], [
            (4, [b"a", b"b"]), (2, [b"c", b"d"])
        ]), ([4, 2], [b"a", b"b", b"c"], []), (torch.tensor(3), [b"a", b"a"], [
            (3, [b"a"])
        ]), (12, [b"a"], []), ([], [], []), (1, [], []), (1, [b"%d" % i for i in range(17)], [])):
            self.learner.learned = []
            self.learner.learn(index, paths)
            self.assertEqual(self.learner.learned, learned)

    def fetcher(self, dataset):
        kind = torch.utils.data._utils.fetch._MapDatasetFetcher
        return kind(dataset, True, as_is,
                    False), kind.fetch.__closure__[[*kind.fetch.__code__.co_freevars
                                                   ].index("real")].cell_contents

    def test_a_data_set_that_is_asked_for_batches(self):
        """Newer versions of torch ask a data set for batches. Here, the test does so instead of
        torch's fetcher."""
        class Batches(Files):
            def __getitems__(this, indices):
                self.opened = [b"/%d" % i for i in indices]
                return list(indices)

        def real(fetcher, indices):
            items = fetcher.dataset.__getitems__(indices) if hasattr(
                fetcher.dataset, "__getitems__") else [fetcher.dataset[i] for i in indices]
            self.opened += [b"/other"]
            return items

        inner = Batches(10)
        self.learner.fetch(real, types.SimpleNamespace(dataset=inner), [3, 1])
        self.assertEqual(self.store.written, [(3, [b"/3"]), (1, [b"/1"])])
        self.store.written.clear()
        # Each sample reads its own item, although the subset supports batches.
        subset = torch.utils.data.Subset(Files(10), [5, 6])
        with unittest.mock.patch.object(torch.utils.data.Subset, "__getitems__", create=True,
                                        new=lambda *_: self.fail("asked for a batch")):
            self.ask_subset(real, subset)

    def test_a_data_set_is_asked_for_batches_when_torch_would_ask(self):
        class Odd(Files):
            def __getattr__(self, name):
                raise ValueError(name)

        self.opened = [b"/a"]
        fetched = self.learner.fetch(lambda fetcher, index: fetcher.dataset[index],
                                     types.SimpleNamespace(dataset=Odd(10)), 3)
        self.assertEqual((fetched, self.store.written), (3, [(3, [b"/a"])]))
        for dataset, error in ((Odd(10), ValueError), (Files(10), AttributeError)):
            self.assertRaises(error, self.learner.fetch,
                              lambda fetcher, _: fetcher.dataset.__getitems__,
                              types.SimpleNamespace(dataset=dataset), [3])

    def ask_subset(self, real, subset):
        self.opened = [b"/x"]
        self.learner.fetch(real,
                           types.SimpleNamespace(dataset=torch.utils.data.Subset(subset, [0, 1])),
                           [1, 0])
        self.assertEqual(len(self.store.written), 2)

    def test_known_items_are_seldom_watched(self):
        fetcher, real = self.fetcher(Files(10))
        self.opened, self.news = [b"/a"], 0
        for _ in range(400):
            self.learner.fetch(real, fetcher, list(range(10)))
        self.assertLess(len(self.store.written), 256 + 10 + 400 * 10 / 16 + 10)
        seen, self.news = len(self.store.written), 1
        for _ in range(32):
            self.learner.fetch(real, fetcher, list(range(10)))
        self.assertGreater(len(self.store.written) - seen, 100)

    def test_error_of_the_data_set_reaches_the_program(self):
        class Failing(Files):
            def __getitem__(self, index):
                raise ValueError(type(self).__name__)

        dataset = Failing(10)
        fetcher, real = self.fetcher(dataset)
        self.assertRaisesRegex(ValueError, "Failing", self.learner.fetch, real, fetcher, [1])
        self.assertIs(fetcher.dataset, dataset)

    def test_error_of_the_learner_does_not_reach_the_program(self):
        fetcher, real = self.fetcher(Files(10))

        def fail(learned):
            raise OSError("no room")

        self.store.write, self.opened = fail, [b"/a"]
        self.assertEqual(self.learner.fetch(real, fetcher, [1, 2]), [1, 2])
        self.assertTrue(self.learner.is_over)
        fetcher._cubeshim_learner = self.learner
        self.assertEqual(fetcher.fetch([3]), [3])

    def test_items_without_files_are_soon_left_alone(self):
        fetcher, real = self.fetcher(Files(10))
        while not self.learner.is_over:
            self.learner.fetch(real, fetcher, list(range(10)))
            self.assertLess(self.learner.looked_at, 300)
        self.assertEqual(self.store.written, [])


if __name__ == "__main__":
    sys.exit(unittest.main())
