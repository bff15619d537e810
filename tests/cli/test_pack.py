"""`cubeshim pack`, `ls`, `cat`, `extract` and `verify`, as a user types them."""
import hashlib
import json
import os
import resource
import shutil
import signal
import socket
import stat
import subprocess
import unittest
from pathlib import Path

from cli_case import COMMAND, Case
from cli_terminal import Terminal

IS_ROOT = os.geteuid() == 0


def digest(path):
    sha = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            sha.update(block)
    return sha.hexdigest()


def picture(root):
    """Returns everything that a pack must keep, by path."""
    root, rows, inodes = os.fsencode(root), {}, {}
    for directory, directories, files in os.walk(root):
        for name in [b"."] + files + [
                d for d in directories if os.path.islink(os.path.join(directory, d))
        ]:
            path = os.path.join(directory, name) if name != b"." else directory
            s = os.lstat(path)
            key = os.path.relpath(path, root)
            content = os.readlink(path) if stat.S_ISLNK(
                s.st_mode) else digest(path) if stat.S_ISREG(s.st_mode) else None
            names = inodes.setdefault((s.st_dev, s.st_ino), set())
            names.add(key)
            rows[key] = (s.st_mode, s.st_uid, s.st_gid, s.st_mtime_ns, content, names)
    return rows


def size_of(path):
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


class Pack(Case):
    def setUp(self):
        super().setUp()
        self.file.unlink()
        self.work = self.data.parent
        self.pack = self.work / "set.cube"
        self.out = self.work / "out"

    def fill(self):
        for i in range(200):
            folder = self.data / f"class {i % 5}"
            folder.mkdir(exist_ok=True)
            (folder / f"{i}.jpg").write_bytes(os.urandom(i * 40))
        odd = self.data / "odd"
        odd.mkdir()
        for name in (b"new\nline", b"\xff\xfe\x80", b"-dash", b" ", b"...", "\u00fc\u6f22".encode(),
                     b"n" * 255, b"*?$'\""):
            Path(os.fsdecode(os.path.join(os.fsencode(odd), name))).write_bytes(name)
        (self.data / "empty file").touch()
        (self.data / "empty/dir").mkdir(parents=True)
        os.symlink("odd/-dash", self.data / "link")
        os.symlink("class 0", self.data / "link to directory")
        os.symlink("nowhere" * 30, self.data / "broken")
        os.link(self.data / "class 1/1.jpg", self.data / "class 2/hard link")
        os.chmod(self.data / "class 3", 0o1750)
        os.chmod(self.data / "class 1/6.jpg", 0o4711)
        os.chmod(self.data / "class 1/11.jpg", 0 if IS_ROOT else 0o400)
        os.utime(self.data / "class 4", ns=(1, 1_234_567_890_123_456_789))
        os.utime(self.data / "link", ns=(1, 77_000_000_007), follow_symlinks=False)

    def make(self, *options, status=0):
        done = self.command("pack", self.data, self.pack, "--json", "-q", *options)
        self.assertEqual((done.returncode, done.stderr), (status, b""))
        return json.loads(done.stdout)

    def extract(self, *paths, status=0):
        done = self.command("extract", "-q", self.pack, self.out, *paths)
        self.assertEqual(done.returncode, status, done.stderr)
        return done

    def assert_one_line(self, done, text, status=1):
        self.assertEqual((done.returncode, done.stderr.count(b"\n")), (status, 1), done.stderr)
        self.assertIn(text, done.stderr.decode())


class RoundTrip(Pack):
    def test_everything_comes_back_as_it_was(self):
        self.fill()
        if IS_ROOT:
            os.chown(self.data / "class 0/0.jpg", 1234, 5678)
        before = picture(self.data)
        summary = self.make("--verify")
        self.assertEqual((summary["files"], summary["links"], summary["skipped"]), (210, 3, 0))
        self.extract()
        self.assertEqual(picture(self.out), before)
        done = self.command("verify", self.pack, "--against", self.data)
        self.assertEqual((done.returncode, done.stderr), (0, b""), done.stdout)
        self.assertIn(b"all is well", done.stdout)

    @unittest.skipUnless(IS_ROOT, "only root becomes somebody else")
    def test_setuid_program_loses_its_bits_unless_its_owner_extracts_it(self):
        (self.data / "program").touch()
        (self.data / "program").chmod(0o6755)
        self.make()
        # Uses a directory that all users can read, because the build directory might not be
        # readable.
        command = shutil.copy(COMMAND, self.work)
        self.work.chmod(0o755)
        self.pack.chmod(0o644)
        self.out.mkdir()
        self.out.chmod(0o777)
        for user, mode in ((0, 0o6755), (65534, 0o755)):
            subprocess.run([command, "extract", "--force", self.pack, self.out / str(user)],
                           user=user, group=user, extra_groups=[], check=True)
            self.assertEqual(stat.S_IMODE((self.out / str(user) / "program").stat().st_mode), mode)

    def test_a_large_sparse_file_takes_no_room_where_it_is_extracted(self):
        size = 300 << 20
        with open(self.data / "large", "wb") as file:
            for at in (0, 123_456_789, size - 5):
                file.seek(at)
                file.write(b"here!")
        (self.data / "z").write_bytes(b"behind")
        self.make("--verify")
        self.extract()
        self.assertEqual(picture(self.out), picture(self.data))
        self.assertLess((self.out / "large").stat().st_blocks * 512, 1 << 20)
        with subprocess.Popen([COMMAND, "cat", self.pack, "large"],
                              stdout=subprocess.PIPE) as child:
            self.assertEqual(
                hashlib.file_digest(child.stdout, "sha256").hexdigest(),
                digest(self.data / "large"))

    def test_the_same_tree_gives_the_same_bytes(self):
        self.fill()
        self.make()
        first = digest(self.pack)
        self.make("--jobs", "1")
        self.assertEqual(digest(self.pack), first)
        self.assertEqual(sorted(os.listdir(self.work)), ["data", "set.cube"])

    def test_list_packs_exactly_the_listed_paths(self):
        self.fill()
        listed = self.work / "list"
        listed.write_text(
            f"# some\nclass 0/5.jpg\n- {self.data}/class 1/16.jpg\n{self.data}/class 1\nnone\n")
        summary = self.make("--list", listed, status=1)
        self.assertEqual(summary["files"], 1 + 39)
        self.assertEqual(
            {row["reason"]: row["files"] for row in summary["reasons"] if not row["wanted"]},
            {"missing": 1})
        names = self.command("ls", "-R", self.pack).stdout.decode().splitlines()
        self.assertIn("class 0/5.jpg", names)
        self.assertNotIn("class 1/16.jpg", names)
        self.assertNotIn("class 0/0.jpg", names)

    def test_a_list_may_name_the_directory_as_it_was_given(self):
        self.fill()
        given = self.work / "given"
        os.symlink(self.data, given)
        listed = self.work / "list"
        listed.write_text(f"{given}/class 0/5.jpg\n{self.data}/class 0/10.jpg\n/elsewhere/5.jpg\n")
        done = self.command("pack", "-q", "--json", given, self.pack, "--list", listed)
        summary = json.loads(done.stdout)
        self.assertEqual((done.returncode, summary["files"]), (1, 2))
        self.assertEqual([(row["reason"], row["files"]) for row in summary["reasons"]],
                         [(f"outside {given}", 1)])

    def test_parts_can_be_extracted(self):
        self.fill()
        self.make()
        self.extract("class 0/5.jpg", "./empty/")
        self.assertEqual({os.path.relpath(p, self.out) for p in self.out.rglob("*")},
                         {"class 0", "class 0/5.jpg", "empty", "empty/dir"})
        self.assert_one_line(self.command("extract", self.pack, self.out, "class 9"),
                             "class 9 is not in the pack")
        done = self.extract("class 0/5.jpg", status=1)
        self.assertIn(b"class 0/5.jpg: File exists", done.stderr)
        self.assertEqual(
            self.command("extract", "-q", "--force", self.pack, self.out,
                         "class 0/5.jpg").returncode, 0)


class Looking(Pack):
    def test_ls_and_cat(self):
        self.fill()
        self.make()
        run = lambda *words: self.command(*words).stdout
        self.assertEqual(
            os.fsdecode(run("ls", self.pack)).splitlines(), sorted(os.listdir(self.data)))
        self.assertEqual(run("ls", self.pack, "empty"), b"dir\n")
        self.assertEqual(run("ls", self.pack, "class 0/5.jpg"), b"class 0/5.jpg\n")
        rows = run("ls", "-l", self.pack).decode().splitlines()
        self.assertTrue(
            any(row.startswith("l") and row.endswith(" link -> odd/-dash") for row in rows))
        self.assertTrue(
            any(row.startswith("drwxr-x--T") and row.endswith(" class 3") for row in rows))
        self.assertEqual(run("cat", self.pack, "class 0/5.jpg", "odd/..."),
                         (self.data / "class 0/5.jpg").read_bytes() + b"...")
        for path, text in (("none", "none is not in the pack"), ("empty", "empty is a directory"),
                           ("link", "link is a link"), ("../data", "data is not in the pack")):
            self.assert_one_line(self.command("cat", self.pack, path), text)

    def test_verify_against_a_directory_names_the_differences(self):
        self.fill()
        self.make()
        for name, content in (("class 0/5.jpg", b"x" * 200), ("class 0/10.jpg", b"short"),
                              ("odd/...", b"..?")):
            s = (self.data / name).stat()
            (self.data / name).write_bytes(content)
            os.utime(self.data / name, ns=(s.st_atime_ns, s.st_mtime_ns))
        (self.data / "class 1/6.jpg").chmod(0o755)
        (self.data / "new").touch()
        (self.data / "class 0/0.jpg").unlink()
        os.unlink(self.data / "link")
        os.symlink("elsewhere", self.data / "link")
        done = self.command("verify", "-q", self.pack, "--against", self.data)
        self.assertEqual(done.returncode, 1)
        text = done.stdout.decode()
        for line in ("class 0/5.jpg: has other bytes",
                     "class 0/10.jpg: has 5 bytes in the directory, and 400 here",
                     "odd/...: has other bytes", "new: not in the pack",
                     "class 0/0.jpg: the directory does not have it",
                     "class 1/6.jpg: has another mode in the directory",
                     "link: leads to somewhere else", "7 problems"):
            self.assertIn(line, text)

    def test_damage_is_found_and_never_given_out(self):
        (self.data / "a").write_bytes(b"A" * 5000)
        (self.data / "b").write_bytes(b"B" * 5000)
        self.make()
        whole = self.pack.read_bytes()
        at = whole.index(b"A" * 5000)
        self.pack.write_bytes(whole[:at + 99] + b"x" + whole[at + 100:])
        done = self.command("verify", "-q", self.pack)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"a: damaged in the pack\n", done.stdout)
        done = self.command("cat", self.pack, "a")
        self.assertEqual((done.returncode, done.stdout), (1, b""))
        self.assertEqual(self.command("cat", self.pack, "b").stdout, b"B" * 5000)
        done = self.extract(status=1)
        self.assertIn(b"a: damaged in the pack", done.stderr)
        self.assertEqual(os.listdir(self.out), ["b"])

    def test_file_is_replaced_only_by_a_sound_one(self):
        for name, content in (("a", b"A" * 5000), ("b", b"B" * 5000)):
            (self.data / name).write_bytes(content)
        os.link(self.data / "b", self.data / "c")
        os.symlink("b", self.data / "link")
        self.make()
        self.extract()
        (self.out / "a").write_bytes(b"mine")
        (self.out / "b").write_bytes(b"other")
        whole = self.pack.read_bytes()
        at = whole.index(b"A" * 5000)
        self.pack.write_bytes(whole[:at] + b"x" + whole[at + 1:])
        self.assertEqual(
            self.command("extract", "-q", "--force", self.pack, self.out).returncode, 1)
        self.assertEqual((self.out / "a").read_bytes(), b"mine")
        self.assertEqual((self.out / "c").read_bytes(), b"B" * 5000)
        self.assertTrue((self.out / "c").samefile(self.out / "b"))
        self.assertEqual(os.readlink(self.out / "link"), "b")
        self.assertEqual(sorted(os.listdir(self.out)), ["a", "b", "c", "link"])

    def test_reports_the_number_of_failures_without_a_line(self):
        for i in range(25):
            (self.data / f"f{i}").touch()
        self.make()
        self.extract()
        told = self.extract(status=1).stderr.decode().splitlines()
        self.assertEqual((len(told), *told[-2:]), (22, "cubeshim: and 5 more that failed",
                                                   "cubeshim: 25 were there already; --force "
                                                   "replaces them"))

    def test_failure_has_a_separate_line_on_a_terminal(self):
        for i in range(25):
            (self.data / f"f{i}").touch()
        self.make()
        self.extract()
        terminal = Terminal(120, 40)
        self.addCleanup(terminal.close)
        subprocess.run([COMMAND, "extract", self.pack, self.out], stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL, stderr=terminal.slave, timeout=300)
        terminal.until("^cubeshim: 25 were there already; ", is_full=False)
        told = terminal.text().split("\n")
        self.assertEqual([line for line in told if "File exists" in line],
                         [line for line in told if line.endswith(": File exists") and
                          line.startswith("cubeshim: f")])

    def test_a_directory_that_was_there_stays_as_it_is(self):
        os.chmod(self.data, 0o700)
        self.make()
        self.out.mkdir()
        os.chmod(self.out, 0o751)
        self.extract()
        self.assertEqual(stat.S_IMODE(self.out.stat().st_mode), 0o751)

    def test_output_that_cannot_be_written_is_reported(self):
        (self.data / "a").write_bytes(b"A")
        self.make()
        for words, text in ((["ls"], "cannot write to standard output"),
                            (["verify", "-q"], "cannot write to standard output"),
                            (["cat"], "a cannot be given out: No space left on device")):
            with open("/dev/full", "wb") as full:
                more = ["a"] if words[0] == "cat" else []
                done = subprocess.run([COMMAND, *words, self.pack, *more], stdout=full,
                                      stderr=subprocess.PIPE)
            self.assert_one_line(done, text)

    def test_garbage_is_refused(self):
        self.pack.write_bytes(os.urandom(20_000))
        for words in (["ls"], ["cat"], ["extract"], ["verify"]):
            more = {"cat": ["x"], "extract": [self.out]}.get(words[0], [])
            self.assert_one_line(self.command(*words, self.pack, *more),
                                 f"{self.pack} is not a pack")
        self.assert_one_line(self.command("pack", self.data, self.pack),
                             "is there already and is not a whole pack")
        self.assert_one_line(self.command("ls", self.work / "none"), "No such file")
        self.assert_one_line(self.command("ls"), "FILE is required", status=2)
        self.assert_one_line(self.command("pack", self.data, ""), "is not a name of a file")
        self.pack.unlink()
        self.make()
        self.assert_one_line(self.command("verify", self.pack, "--against", self.work / "none"),
                             "none: No such file")


class Hostile(Pack):
    def test_nothing_is_written_through_links(self):
        (self.data / "a").mkdir()
        (self.data / "a/f").write_bytes(b"evil")
        self.make()
        outside = self.work / "outside"
        outside.mkdir()
        self.out.mkdir()
        os.symlink(outside, self.out / "a")
        done = self.extract(status=1)
        self.assertIn(b"a/f: ", done.stderr)
        self.assertEqual(os.listdir(outside), [])
        # The target of a link with this name is not written either; --force replaces the link.
        (self.out / "a").unlink()
        (self.out / "a").mkdir()
        target = self.work / "target"
        target.write_bytes(b"mine")
        os.symlink(target, self.out / "a/f")
        self.extract(status=1)
        self.command("extract", "-q", "--force", self.pack, self.out)
        self.assertEqual(target.read_bytes(), b"mine")
        self.assertEqual((self.out / "a/f").read_bytes(), b"evil")

    def test_file_left_by_a_killed_process_of_this_pid_is_no_obstacle(self):
        (self.data / "f").write_bytes(b"1")
        self.make()
        self.out.mkdir()
        script = 'touch "$3/.cubeshim-extract-$$"; exec "$1" extract -q --force "$2" "$3"'
        subprocess.run(["bash", "-c", script, "bash", COMMAND, self.pack, self.out], check=True)
        self.assertEqual((self.out / "f").read_bytes(), b"1")

    def test_names_that_lead_out_are_damage(self):
        # The name is as long as "..", so it can be replaced by "..". Then every hash is recomputed,
        # as by a forger. No record with such a path is accepted (tests/pack, format_test), so a
        # pack with recomputed hashes must be refused, too.
        (self.data / "AA").mkdir()
        (self.data / "AA/f").write_bytes(b"evil")
        self.make()
        self.pack.write_bytes(self.pack.read_bytes().replace(b"AA/f", b"../f"))
        self.extract(status=1)
        self.assertFalse((self.work / "f").exists())


class Trouble(Pack):
    def test_files_that_cannot_be_packed_are_reported_and_the_rest_is_packed(self):
        (self.data / "f").write_bytes(b"1")
        os.mkfifo(self.data / "fifo")
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(str(self.data / "socket"))
        summary = self.make(status=1)
        self.assertEqual((summary["files"], summary["skipped"]), (1, 2))
        self.assertEqual([(r["reason"], r["files"], r["first"]) for r in summary["reasons"]],
                         [("not regular files", 2, "fifo")])
        done = self.command("pack", self.data, self.pack)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"skipped: 2 not regular files, the first is fifo\n", done.stdout)

    def test_a_pack_in_its_own_tree_is_refused(self):
        (self.data / "f").write_bytes(b"1")
        self.assert_one_line(self.command("pack", self.data, self.data / "set.cube"),
                             "cannot lie in the directory that is packed")
        self.assertEqual(os.listdir(self.data), ["f"])

    def test_missing_directories_are_reported(self):
        self.assert_one_line(self.command("pack", self.work / "none", self.pack),
                             "No such file or directory")
        self.assert_one_line(self.command("pack", self.data, self.work / "none/set.cube"),
                             "No such file or directory")

    def test_run_after_a_kill_gives_the_same_bytes(self):
        for i in range(3000):
            folder = self.data / f"{i % 10}"
            folder.mkdir(exist_ok=True)
            (folder / f"{i}").write_bytes(os.urandom(3000))
        self.make()
        reference = digest(self.pack)
        self.pack.unlink()
        partial = Path(f"{self.pack}.partial")
        for size in (1 << 20, 5 << 20, 9 << 20):
            # The kernel kills the process during the write that exceeds the limit, even if the
            # write is fast.
            def limit(size=size):
                resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
                resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

            child = subprocess.Popen([COMMAND, "pack", "-q", self.data, self.pack, "--jobs", "2"],
                                     preexec_fn=limit)
            self.assertEqual(child.wait(timeout=300), -signal.SIGXFSZ)
            self.assertEqual(size_of(partial), size)
        done = json.loads(self.command("pack", "-q", "--json", self.data, self.pack).stdout)
        self.assertEqual(digest(self.pack), reference)
        self.assertGreater(done["resumed"], 2000)
        self.assertFalse(partial.exists())

    def test_interrupt_prints_how_to_continue(self):
        for i in range(5000):
            (self.data / f"{i}").write_bytes(bytes(2000))
        child = self.start("pack", "-q", self.data, self.pack, "--jobs", "1",
                           stderr=subprocess.PIPE)
        partial = Path(f"{self.pack}.partial")
        while child.poll() is None and not partial.exists():
            pass
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=300)
        if child.returncode == 0:
            self.skipTest("it was done before the signal came")
        self.assertEqual(child.returncode, 128 + signal.SIGINT)
        self.assertIn(f"the same command continues {partial}".encode(), errors)
        self.make()
        self.assertEqual(
            self.command("verify", "-q", self.pack, "--against", self.data).returncode, 0)

    @unittest.skipUnless(IS_ROOT, "needs a mount")
    def test_a_full_disk_is_reported_and_the_next_run_continues_the_work(self):
        for i in range(300):
            (self.data / f"{i:03}").write_bytes(os.urandom(30_000))
        small = self.work / "small"
        small.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "none", small], check=True)
        self.addCleanup(lambda: subprocess.run(["umount", "-l", small], check=True))
        self.pack = small / "set.cube"
        self.assert_one_line(self.command("pack", "-q", self.data, self.pack),
                             "set.cube.partial: No space left on device")
        self.assertFalse(self.pack.exists())
        subprocess.run(["mount", "-o", "remount,size=60m", small], check=True)
        summary = self.make("--verify")
        self.assertEqual(summary["files"], 300)
        self.assertGreater(summary["resumed"], 50)


if __name__ == "__main__":
    unittest.main()
