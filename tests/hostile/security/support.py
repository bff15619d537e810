"""A job with a data set, a directory for regions, and a library that every user may read. All of
them are removed with the job."""
import json
import os
import shutil
import stat
import subprocess
import tempfile
import unittest

PYTHON = "/usr/bin/python3"
NOBODY, USER, GROUP = 65534, 54321, 60001
CONTENT = b"what the file holds\n" * 300

as_root = unittest.skipUnless(os.geteuid() == 0, "only root can take on other users")


def as_user(uid, *groups):
    """Returns the words in front of a command that run it as another user, with these groups in
    addition to the user's own group."""
    return [
        "setpriv", f"--reuid={uid}", f"--regid={uid}",
        f"--groups={','.join(map(str, groups))}" if groups else "--clear-groups"
    ]


def write(path, content=CONTENT, mode=0o644, owner=None):
    with open(path, "wb") as file:
        file.write(content)
    os.chmod(path, mode)
    if owner is not None:
        os.chown(path, owner, owner)
    return path


def snapshot(path):
    """Returns the state of a file that must not change: everything except the access time."""
    st = os.lstat(path)
    content = b""
    if stat.S_ISREG(st.st_mode):
        with open(path, "rb") as file:
            content = file.read()
    return (st.st_mode, st.st_uid, st.st_gid, st.st_ino, st.st_size, st.st_mtime_ns, content)


class Job:
    def __init__(self):
        self.directory = tempfile.mkdtemp(prefix="cubeshim-security-")
        os.chmod(self.directory, 0o755)
        self.ram_dir = tempfile.mkdtemp(prefix="cubeshim-security-", dir="/dev/shm")
        os.chmod(self.ram_dir, 0o1777)
        self.data = self.path("data")
        os.mkdir(self.data)
        self.file = write(f"{self.data}/f")
        self.library = shutil.copy(os.environ["CUBESHIM_LIBRARY"], self.path("libcubeshim.so"))
        os.chmod(self.library, 0o755)
        self.open_dir = self.path("open")  # all users may make files here, as in /tmp
        os.mkdir(self.open_dir)
        os.chmod(self.open_dir, 0o1777)
        self.report = f"{self.open_dir}/report.json"
        self.settings = {
            "CUBESHIM_PREFIXES": self.data, "CUBESHIM_RAM": "16M", "CUBESHIM_RAM_DIR": self.ram_dir,
            "CUBESHIM_STATS": self.report, "CUBESHIM_STATS_FORMAT": "json",
            "CUBESHIM_NAME": "security"
        }

    def path(self, name):
        return f"{self.directory}/{name}"

    def region(self, uid=None, name=None):
        uid = os.geteuid() if uid is None else uid
        return f"{self.ram_dir}/cubeshim-{uid}-{name or self.settings['CUBESHIM_NAME']}"

    def environment(self, **settings):
        every = {
            "PATH": os.environ["PATH"], "LD_PRELOAD": self.library, "LANG": "C.UTF-8",
            **self.settings, **settings
        }
        return {key: value for key, value in every.items() if value is not None}

    def run(self, command, before=(), timeout=60, **settings):
        """Runs a command. `before` runs without the library; only the command loads it."""
        environment = self.environment(**settings)
        preload = environment.pop("LD_PRELOAD", None)
        words = [*before, "env", *([f"LD_PRELOAD={preload}"] if preload else []), *command]
        done = subprocess.run(words, env=environment, capture_output=True, timeout=timeout,
                              check=False, stdin=subprocess.DEVNULL)
        done.stdout = done.stdout.decode(errors="backslashreplace")
        return done

    def python(self, script, before=(), timeout=60, **settings):
        return self.run([PYTHON, "-c", f"F = {self.file!r}\n" + script], before, timeout,
                        **settings)

    def read(self, before=(), **settings):
        """Runs a program that reads the file and prints its length."""
        return self.python("print(len(open(F, 'rb').read()))", before, **settings)

    def totals(self, path=None):
        with open(path or self.report, encoding="utf-8") as file:
            return json.loads(file.read().splitlines()[-1])

    def close(self):
        shutil.rmtree(self.directory, ignore_errors=True)
        shutil.rmtree(self.ram_dir, ignore_errors=True)


class Case(unittest.TestCase):
    def setUp(self):
        self.job = Job()
        self.addCleanup(self.job.close)

    def lines(self, done):
        return done.stderr.splitlines()

    def assert_well(self, done, lines=0):
        """Checks that the program behaved as without the library, and that the library printed this
        many lines."""
        self.assertEqual((done.returncode, done.stdout.strip()), (0, str(len(CONTENT))),
                         done.stderr)
        self.assertEqual(len(self.lines(done)), lines, done.stderr)

    def assert_one_line(self, done, *words):
        self.assert_well(done, lines=1)
        for word in words:
            self.assertIn(os.fsencode(word), done.stderr)
