"""The file is changed at each step of its fetch, as by another node. The reader must get the same
bytes as a reader without the library could."""
import os

import support
from support import Host, content, whole

SIZE = 300_000
LARGE = 500_000  # several requests, for every way of reading

STEPS = [("lookup", 1), ("lookup", 2), ("open", 1), ("getattr", 1), ("getattr", 2), ("getattr", 3),
         ("getattr", 4), ("read", 1), ("read", 2), ("read", 3), ("read", 4), ("flush", 1)]


def in_place(path, data):
    with open(path, "r+b") as file:
        file.write(data)
        file.truncate(len(data))


def by_name(path, data):
    other = path.with_name(path.name + ".new")
    other.write_bytes(data)
    os.rename(other, path)


def append(path, data):
    with open(path, "ab") as file:
        file.write(data)


def to_directory(path):
    path.unlink()
    path.mkdir()


def to_link(path, data):
    target = path.with_name(path.name + ".target")
    target.write_bytes(data)
    path.unlink()
    path.symlink_to(target.name)


CHANGES = {
    "truncated to nothing": lambda path, old, new: os.truncate(path, 0),
    "truncated to a half": lambda path, old, new: os.truncate(path,
                                                              len(old) // 2),
    "grown": lambda path, old, new: append(path, b"more" * 1000),
    "grown by a byte": lambda path, old, new: append(path, b"x"),
    "rewritten": lambda path, old, new: in_place(path, new),
    "rewritten shorter": lambda path, old, new: in_place(path, new[:-1000]),
    "replaced": lambda path, old, new: by_name(path, new),
    "replaced by a longer one": lambda path, old, new: by_name(path, new + b"more"),
    "removed": lambda path, old, new: path.unlink(),
    "touched": lambda path, old, new: os.utime(path),
    "made a directory": lambda path, old, new: to_directory(path),
    "made a link": lambda path, old, new: to_link(path, new),
}

# One change of each kind. Used for ways of reading that differ only in the number of requests to
# the origin.
FEW_CHANGES = CHANGES if support.IS_LONG else ("truncated to a half", "rewritten", "replaced",
                                               "removed")


class Steps(support.FaultCase):
    lie = ""

    def results(self, origin, reader, change, step, size):
        """Returns the bytes that the reader may see if the file changes at this step, and the bytes
        that the reader and `others` may see afterwards."""
        self.count = getattr(self, "count", 0) + 1
        name = f"f{self.count}"
        old, new = content(1, size), content(2, size)
        path = origin.put(name, old)
        os.utime(origin.source(name), (10**9, 10**9))
        answer, held = origin.while_held(reader, f"read {path}",
                                         f"{self.lie}hold {step[0]} {step[1]}",
                                         lambda: CHANGES[change](origin.source(name), old, new))
        return answer, held, path

    def compare(self, change, size, *options, **more):
        origin = self.mount(*options)
        native = self.native()
        host = Host(self, self.settings(origin.root, RAM="64M", **more))
        other = Host(self, self.settings(origin.root, RAM="64M", **more))
        old = content(1, size)
        possible = {whole(old)}
        for step in STEPS:
            answer, _, path = self.results(origin, native, change, step, size)
            possible |= {answer, native.ask(f"read {path}")}
        reached = 0
        for step in STEPS:
            with self.subTest(change=change, step=step, size=size):
                answer, held, path = self.results(origin, host, change, step, size)
                self.assertIn(answer, possible)
                if not held:
                    continue
                reached += 1
                now = native.ask(f"read {path}")
                for reader in (host, other):
                    # If files count as immutable, the reader sees either the whole old file or the
                    # whole new file.
                    self.assertIn(reader.ask(f"read {path}"),
                                  {now} if "CONSISTENCY" in more else {now, whole(old)})
                self.tried()
        self.assertGreater(reached, 4)

    def test_one_request(self):
        for change in CHANGES:
            self.compare(change, SIZE, "--direct")

    def test_many_requests(self):
        for change in CHANGES:
            self.compare(change, LARGE, "--direct", "--max-read=131072")

    def test_through_the_page_cache(self):
        for change in FEW_CHANGES:
            self.compare(change, SIZE, "--max-read=131072")

    def test_many_requests_of_a_file_with_old_times(self):
        self.lie = "lie times -1000000\n"
        for change in CHANGES:
            self.compare(change, LARGE, "--direct", "--max-read=131072")

    def test_when_freshness_is_asked_for(self):
        for change in FEW_CHANGES:
            self.compare(change, SIZE, "--direct", CONSISTENCY="open")


if __name__ == "__main__":
    support.main(__name__)
