"""A job that changes and reads a tree, in an order that depends on a seed, and prints the results.
It runs natively and under the library, and both outputs must be the same.

    metadata_job.py TREE ALIAS SEED STEPS    ALIAS leads to TREE by a path that is not a prefix"""
import os
import random
import subprocess
import sys

# A process without the library sets back the times of directories, so that their listings are kept
# again immediately.
AGER = """
import os, sys
for line in sys.stdin:
    for top, _, _ in os.walk(line.rstrip("\\n")):
        os.utime(top, (1e9, 1e9))
    print("aged", flush=True)
"""
NAMES = ["a", "b.jpg", "c", "Dd", "e e", "f"]


def said(call):
    try:
        return call()
    except OSError as error:
        return f"errno {error.errno}"


class Job:
    def __init__(self, tree: str, alias: str, seed: int):
        self.tree, self.alias, self.random = tree, alias, random.Random(seed)
        clean = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        self.ager = subprocess.Popen([sys.executable, "-c", AGER], env=clean, stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE, text=True)

    def path(self, may_be_alias: bool = False) -> str:
        root = self.alias if may_be_alias and self.random.random() < 0.3 else self.tree
        return "/".join(
            [root] + [self.random.choice(NAMES) for _ in range(self.random.choice([1, 2, 2, 3]))])

    def look(self, path: str) -> str:
        def stat(call):
            found = call(path)
            return (f"{found.st_mode:o} {found.st_size} {found.st_nlink} "
                    f"{found.st_ino == os.stat(path, follow_symlinks=call is os.stat).st_ino}")

        def entries():
            with os.scandir(path) as found:
                return sorted((entry.name, entry.is_dir(follow_symlinks=False), entry.is_symlink())
                              for entry in found)

        looks = [
            lambda: stat(os.stat), lambda: stat(os.lstat), lambda: os.path.exists(path),
            lambda: os.access(path, os.F_OK), lambda: os.access(path, os.R_OK),
            lambda: sorted(os.listdir(path)), entries, lambda: open(path, "rb").read(),
            lambda: os.readlink(path), lambda: os.path.realpath(path).replace(self.tree, "TREE"),
            lambda: sorted((top.replace(self.tree, ""), sorted(dirs), sorted(files))
                           for top, dirs, files in os.walk(self.tree))
        ]
        return str(said(self.random.choice(looks)))

    def change(self) -> str:
        path, other = self.path(True), self.path(True)

        def create():
            with open(path, self.random.choice(["w", "a", "x"])) as file:
                file.write("x" * self.random.randrange(9))

        def by_child():
            return subprocess.run(["/bin/sh", "-c", 'echo child > "$1"', "sh", path],
                                  stderr=subprocess.DEVNULL).returncode

        changes = [
            create, create, create, lambda: os.mkdir(path), lambda: os.mkdir(path),
            lambda: os.unlink(path), lambda: os.rmdir(path), lambda: os.rename(path, other),
            lambda: os.link(path, other), lambda: os.symlink(self.random.choice(NAMES), path),
            lambda: os.symlink(other.replace(self.alias, self.tree), path),
            lambda: os.truncate(path, 3), lambda: os.chmod(path, 0o751), lambda: os.mknod(path),
            by_child
        ]
        change = self.random.choice(changes)
        return f"{changes.index(change)} {said(change)}"

    def age(self) -> str:
        print(self.tree, file=self.ager.stdin, flush=True)
        return self.ager.stdout.readline().strip()

    def step(self) -> str:
        dice = self.random.random()
        if dice < 0.1:
            return self.age()
        if dice < 0.3:
            return "change " + self.change()
        return "look " + self.look(self.path())


def main() -> None:
    tree, alias, seed, steps = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    # A few files and directories, with old times.
    job = Job(tree, alias, seed)
    for name in NAMES[:4]:
        os.mkdir(f"{tree}/{name}")
        for inner in NAMES[2:]:
            with open(f"{tree}/{name}/{inner}", "w") as file:
                file.write(inner * 3)
    job.age()
    for step in range(steps):
        print(step, job.step().replace(tree, "TREE").replace(alias, "ALIAS"))
    job.ager.stdin.close()
    job.ager.wait()


if __name__ == "__main__":
    main()
