"""Objects are put and removed while jobs read them, in a random order. A reader in mode `open` must
see the store's current content. A reader in mode `immutable` sees whole versions of a file, and a
new job sees the store's content at its start."""
import hashlib
import json
import os
import random
import unittest

from bucket_store import DEADLINE_S
from test_gateway import GatewayCase

IS_LONG = os.environ.get("CUBESHIM_TEST_LONG") == "1"
READER = """
import errno, hashlib, json, mmap, os, sys
root, held = sys.argv[1], {}
def text_of(data): return [len(data), hashlib.sha256(data).hexdigest()]
def answer(question, path):
    at = os.path.join(root, path) if path else root
    if question == "read":
        with open(at, "rb") as file: return text_of(file.read())
    if question == "map":
        with open(at, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            return text_of(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)[:] if size else b"")
    if question == "stat":
        stat = os.stat(at)
        return "directory" if stat.st_mode & 0o40000 else stat.st_size
    if question == "list": return sorted(os.listdir(at))
    if question == "walk":
        return sorted(os.path.relpath(os.path.join(top, name), root)
                      for top, _, names in os.walk(root) for name in names)
    if question == "hold":
        held.setdefault(path, []).append(open(at, "rb"))
        return os.fstat(held[path][-1].fileno()).st_size
    if question == "held":
        with held[path].pop() as file: return text_of(file.read())
for line in sys.stdin:
    try: print(json.dumps(answer(*json.loads(line))), flush=True)
    except OSError as error: print(json.dumps(errno.errorcode[error.errno]), flush=True)
"""
FILES = ["a", "b c+ü", "d/x", "d/y", "d/e/z", "n", "n/q", "large", "d/large"]
DIRECTORIES = ["", "d", "d/e", "n"]
MISSING = ["none", "a/x", "d/none/x", "none/y"]
LARGE = 300_000


class Reader:

    def __init__(self, case: GatewayCase, **settings):
        self.job = case.start_job(READER, case.mount, CUBESHIM_MAX_FILE="256K",
                                  CUBESHIM_BLOCK="64K", **settings)
        self.held: dict[str, list] = {}  # path: the contents at the opens

    def ask(self, question: str, path: str = ""):
        self.job.stdin.write(json.dumps([question, path]) + "\n")
        self.job.stdin.flush()
        return json.loads(self.job.stdout.readline())

    def end(self):
        return self.job.communicate(timeout=DEADLINE_S)


def text_of(data: bytes):
    return [len(data), hashlib.sha256(data).hexdigest()]


class Changes(GatewayCase):

    def setUp(self):
        super().setUp()
        self.store.objects = {}
        self.versions: dict[str, list] = {}  # path: all contents that its object ever had
        self.count = 0

    def put(self, path: str, size: int):
        self.count += 1
        self.store.modified += 1
        data = (b"%d " % self.count * (size // 2 + 1))[:size]
        self.store.objects["train/" + path] = data
        self.versions.setdefault(path, []).append(text_of(data))

    def change(self, source: random.Random) -> str:
        path = source.choice(FILES)
        is_large = path.endswith("large")
        # A check of a known file does not show that there is now a directory of the same name
        # (SEMANTICS).
        for hidden in [key for key in ("n", "n/q") if path in ("n", "n/q") and key != path]:
            self.store.objects.pop("train/" + hidden, None)
        if "train/" + path in self.store.objects and source.random() < 0.4:
            del self.store.objects["train/" + path]
            return f"remove {path}"
        sizes = (LARGE, LARGE + 5, 600_000) if is_large else (0, 1, 4096, 4097, 50_000)
        old = self.store.objects.get("train/" + path)
        # The length can stay the same, so that it does not show the change.
        size = len(old) if old is not None and source.random() < 0.5 else source.choice(sizes)
        self.put(path, size)
        return f"put {path} {size}"

    def kind_of(self, path: str):
        """A directory hides an object of the same name."""
        below = "train/" + path + "/" * bool(path)
        if not path or any(key.startswith(below) for key in self.store.objects):
            return "directory"
        if "train/" + path in self.store.objects:
            return "file"
        parts = path.split("/")
        above = ["/".join(parts[:n]) for n in range(1, len(parts))]
        return "ENOTDIR" if any(self.kind_of(one) == "file" for one in above) else "ENOENT"

    def names_in(self, path: str):
        below = "train/" + path + "/" * bool(path)
        return sorted({
            key.removeprefix(below).partition("/")[0]
            for key in self.store.objects if key.startswith(below)
        })

    def truth(self, question: str, path: str):
        kind = self.kind_of(path)
        if question == "walk":
            files = [key.removeprefix("train/") for key in self.store.objects]
            return sorted(path for path in files if self.kind_of(path) == "file")
        if question == "list":
            return {"directory": self.names_in(path), "file": "ENOTDIR"}.get(kind, kind)
        if question == "stat":
            is_file = kind == "file"
            return len(self.store.objects["train/" + path]) if is_file else kind
        data = self.store.objects.get("train/" + path, b"")
        of_file = len(data) if question == "hold" else text_of(data)
        return {"directory": "EISDIR", "file": of_file}.get(kind, kind)

    def question(self, source: random.Random) -> tuple[str, str]:
        question = source.choice(("read", "read", "map", "stat", "stat", "list", "walk", "hold"))
        if question == "walk":
            return question, ""
        paths = FILES + DIRECTORIES + MISSING if question in ("stat", "list") else FILES + MISSING
        return question, source.choice(paths)

    def ask(self, reader: Reader, question: str, path: str, story: list[str]):
        answer, wanted = reader.ask(question, path), self.truth(question, path)
        self.assertEqual(answer, wanted, f"{question} {path} after {story}")
        if question == "hold" and isinstance(answer, int):
            reader.held.setdefault(path, []).append(text_of(self.store.objects["train/" + path]))

    def ask_held(self, reader: Reader, source: random.Random, story: list[str]):
        """An open file keeps its version. If the file is large, the bytes that have not been
        fetched yet cannot be read any more."""
        open_ones = [path for path, texts in reader.held.items() if texts]
        if not open_ones:
            return
        path = source.choice(open_ones)
        text = reader.held[path].pop()
        self.assertIn(reader.ask("held", path), [text, "EIO"] if path.endswith("large") else [text],
                      f"held {path} after {story}")

    def ask_immutable(self, reader: Reader, question: str, path: str, story: list[str]):
        answer = reader.ask(question, path)
        if isinstance(answer, list) and question in ("read", "map"):
            self.assertIn(answer, self.versions.get(path, []), f"{question} {path} after {story}")

    def play(self, seed: int, steps: int):
        source, story = random.Random(seed), [f"seed {seed}"]
        for path in FILES[:5]:
            self.put(path, 3000)
        fresh = Reader(self, CUBESHIM_CONSISTENCY="open")
        timed = Reader(self, CUBESHIM_CONSISTENCY="ttl:0")
        fixed = Reader(self, CUBESHIM_CONSISTENCY="immutable")
        for _ in range(steps):
            if source.random() < 0.4:
                story.append(self.change(source))
            question, path = self.question(source)
            for reader in source.sample((fresh, timed), 2):
                self.ask(reader, question, path, story)
                self.ask_held(reader, source, story)
            self.ask_immutable(fixed, question, path, story)
        for reader in (fresh, timed, fixed):
            reader.end()
        self.assertEqual(self.store.refused, [])
        last = Reader(self, CUBESHIM_CONSISTENCY="immutable")
        for path in FILES + DIRECTORIES + MISSING:
            for question in ("stat", "read", "list"):
                self.ask(last, question, path, story)
        last.end()

    def test_readers_see_the_objects_that_their_mode_promises(self):
        for seed in range(20 if IS_LONG else 4):
            with self.subTest(seed=seed):
                self.setUp()
                self.play(seed, 300 if IS_LONG else 150)


if __name__ == "__main__":
    unittest.main()
