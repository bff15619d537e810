"""The files that every case finds under the prefix; the same bytes, modes and times in each run."""

from __future__ import annotations

import hashlib
import os
import random
from fnmatch import fnmatch
from pathlib import Path

# A size above the CUBESHIM_MAX_FILE that app_run sets, so that each case also uses files that are
# not cached.
LARGE = 3 << 20
LONG_AGO = 1_577_836_800


def make_base(data: Path) -> None:
    chance = random.Random(7)
    words = [
        bytes(chance.choices(b"abcdefghijklmnopqrstuvwxyz", k=chance.randint(2, 9)))
        for _ in range(2000)
    ]

    def put(name: str, content: bytes, mode: int = 0o644) -> None:
        path = data / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(mode)

    put("text/empty", b"")
    put("text/one", b"one line\n")
    put("text/no_newline", b"first\nlast without newline")
    put("text/numbers", b"".join(b"%d\n" % n for n in range(1, 1001)))
    put("text/words", b"\n".join(words) + b"\n")
    put("text/table", b"".join(b"%d %s %d\n" % (n, words[n], n * n % 97) for n in range(300)))
    put("text/long", b" ".join(chance.choices(words, k=40_000)) + b"\n")
    put("text/script", b'echo "script on the prefix, $0, $1"\nexit 7\n', 0o755)
    put("text/secret", b"only for its owner\n", 0o400)
    for size in (1, 511, 4095, 4096, 4097, 65_536, 100_001, 1 << 20):
        put(f"binary/{size}", chance.randbytes(size))
    put("binary/large", chance.randbytes(LARGE))
    for n in range(24):
        put(f"tree/{n % 3}/{n % 2}/file_{n:02}.txt",
            b"needle %d\n" % n + chance.randbytes(n * 40).hex().encode() + b"\n")
    put("names/with space", b"space\n")
    put("names/with\nnewline", b"newline\n")
    put("names/-dash", b"dash\n")
    put("names/\u00fcml\u00e4ut", b"umlaut\n")
    (data / "tree/link").symlink_to("0/0/file_00.txt")
    (data / "tree/dangling").symlink_to("nowhere")
    os.link(data / "tree/1/1/file_01.txt", data / "tree/hard_link")
    with open(data / "binary/sparse", "wb") as sparse:
        sparse.truncate(400_000)
        sparse.seek(200_000)
        sparse.write(b"island" * 1000)


def set_times(data: Path) -> None:
    """Sets old times, a different second for each name. Files that a run makes or changes have a
    current time."""
    for number, path in enumerate(sorted(data.rglob("*"))):
        os.utime(path, (LONG_AGO + number, LONG_AGO + number), follow_symlinks=False)
    os.utime(data, (LONG_AGO, LONG_AGO))


def tree(root: Path, label: str, ignored: list[str]) -> list[str]:
    """Returns one line for each entry below `root`. A time is included only if the entry is as old
    as the data, because new times differ in each run."""
    lines = []
    for path in sorted(root.rglob("*")):
        name = f"{label}/{path.relative_to(root)}"
        if any(fnmatch(name, pattern) for pattern in ignored):
            continue
        stat = path.lstat()
        time = str(int(stat.st_mtime)) if stat.st_mtime < LONG_AGO + 1_000_000 else "new"
        if path.is_symlink():
            what, time = f"-> {os.readlink(path)}", "link"
        elif path.is_file():
            what = (f"{stat.st_size} {hashlib.sha256(path.read_bytes()).hexdigest()[:16]} links "
                    f"{stat.st_nlink}")
        else:
            what, time = "", "directory" if path.is_dir() else "other"
        lines.append(f"{name!r} {stat.st_mode:o} {stat.st_uid} {time} {what}")
    return lines
