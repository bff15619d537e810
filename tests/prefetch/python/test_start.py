"""How the package is loaded into a program: by import, before or after torch, by its sitecustomize,
or by `cubeshim run`."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from server import Server

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "prefetch" / "python"

LOOP = """
import sys
from torch.utils.data import DataLoader, Dataset
class Files(Dataset):
    def __init__(self):
        self.samples = [("/data/%d" % i, 0) for i in range(100)]
    def __len__(self):
        return 100
    def __getitem__(self, index):
        return index
if __name__ == "__main__":
    loader = DataLoader(Files(), batch_size=10, shuffle=True,
                        **eval(sys.argv[1] if len(sys.argv) > 1 else "{}"))
    iterator = iter(loader)
    order = next(iterator).tolist()
    sys.stdin.read()
    for batch in iterator:
        order += batch.tolist()
    print(order)
"""


class Case(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory(prefix="cubeshim-python-")
        self.addCleanup(made.cleanup)
        self.dir = Path(made.name)
        self.env = {
            name: value for name, value in os.environ.items() if not name.startswith("CUBESHIM_")
        }
        self.env.update(CUBESHIM_RAM_DIR=str(self.dir), CUBESHIM_NAME="test")

    def python(self, code, *words, env=None, before=(), **more):
        script = self.dir / "script.py"
        script.write_text(code)
        return subprocess.run([*before, "/usr/bin/python3", script, *words],
                              env=self.env | (env or {}), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=100, **more)

    def check_loop(self, before, *words, env=None):
        """Runs a loop that waits for the end of its stdin. The test ends stdin when everything has
        been announced."""
        script = self.dir / "script.py"
        script.write_text(before + LOOP)
        with Server(self.dir, "test") as server:
            loop = subprocess.Popen(["/usr/bin/python3", script, *words],
                                    env=self.env | (env or {}), text=True, stdin=subprocess.PIPE,
                                    stdout=subprocess.PIPE)
            self.addCleanup(loop.wait)
            self.addCleanup(loop.kill)
            heard = server.wait_for_order()[0].paths()
            out, _ = loop.communicate(timeout=100)
            self.assertEqual(loop.returncode, 0)
            self.assertEqual(heard, ["/data/%d" % i for i in json.loads(out)])


class Import(Case):
    path = {"PYTHONPATH": str(PACKAGE)}

    def test_before_torch(self):
        self.check_loop("import cubeshim", env=self.path)

    def test_after_torch(self):
        self.check_loop("import torch, cubeshim", env=self.path)

    def test_workers_by_spawn(self):
        self.check_loop("import cubeshim", "dict(num_workers=2, multiprocessing_context='spawn')",
                        env=self.path)

    def test_import_without_torch_loads_nothing_heavy(self):
        done = self.python(
            "import sys; before = set(sys.modules)\nimport cubeshim, threading\n"
            "print(sorted(set(sys.modules) - before - {'threading'}), threading.active_count())",
            env=self.path)
        self.assertIn("'cubeshim', 'cubeshim._hook']", done.stdout)
        loaded = done.stdout.split("]")[0]
        for heavy in ("socket", "ctypes", "torch", "cubeshim._channel"):
            self.assertNotIn(f"'{heavy}'", loaded)
        self.assertEqual(done.stderr, "")

    def test_modules_are_as_they_were(self):
        done = self.python(
            "import cubeshim\nimport torch.utils.data.dataloader as d, inspect\n"
            "print(type(d.__loader__).__name__, type(d.__spec__.loader).__name__, "
            "inspect.getsource(d)[:3] != '')",
            env=self.path)
        self.assertEqual(done.stdout, "SourceFileLoader SourceFileLoader True\n", done.stderr)

    def test_an_unknown_torch_is_left_alone(self):
        package = self.dir / "torch" / "utils" / "data"
        package.mkdir(parents=True)
        for folder in (package, package.parent, package.parent.parent):
            (folder / "__init__.py").write_text("")
        (package / "dataloader.py").write_text("class DataLoader: pass\n")
        done = self.python(
            "import cubeshim\nfrom torch.utils.data.dataloader import DataLoader\n"
            "print(DataLoader)",
            env=self.path)
        self.assertEqual((done.stdout, done.stderr),
                         ("<class 'torch.utils.data.dataloader.DataLoader'>\n", ""))
        done = self.python(
            "import cubeshim\nfrom torch.utils.data.dataloader import DataLoader\n"
            "print(DataLoader)",
            env=self.path | {"CUBESHIM_LOG": "debug"})
        self.assertEqual(done.stderr.count("\n"), 1)
        self.assertTrue(
            done.stderr.startswith(
                "cubeshim: debug: announcements: torch.utils.data.dataloader is left alone"))

    def test_the_library_is_asked_to_listen(self):
        calls = self.dir / "calls"
        self.check_loop(
            "import cubeshim",
            env=self.path | {"LD_PRELOAD": os.environ["SIDECAR"], "SIDECAR_CALLS": str(calls)})
        self.assertEqual(calls.read_text(), "x")

    def test_failed_announcement_logs_one_line_only_at_level_debug(self):
        code = ("import cubeshim, time\na = cubeshim.announce(['/data/a'])\n"
                "a.channel.thread.join(60)\n")
        self.assertEqual(self.python(code, env=self.path).stderr, "")
        done = self.python(code, env=self.path | {"CUBESHIM_LOG": "debug"})
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn("No such file or directory", done.stderr)

    def test_it_never_fails(self):
        """The program also starts without a working directory, and if no thread can be started."""
        for before in (
                "os.rmdir(os.getcwd())",
                "_thread.start_new_thread = lambda *_: (_ for _ in ()).throw(RuntimeError('no "
                "more'))"
        ):
            gone = self.dir / "gone"
            gone.mkdir(exist_ok=True)
            code = (f"import _thread, cubeshim, os\n{before}\n"
                    "with cubeshim.announce(['/data/a', '/data/b']) as order: "
                    "print(list(order))\n")
            done = self.python(code, env=self.path, cwd=gone)
            self.assertEqual((done.stdout, done.stderr), ("['/data/a', '/data/b']\n", ""))

    def test_process_ends_immediately(self):
        # The server never reads, so the thread is in the middle of its order when the program ends.
        with Server(self.dir, "test", reads=False) as server:
            done = self.python(
                "import cubeshim\nkept = cubeshim.announce(['/data/' + 'x' * 90 + str(i) for i in "
                "range(100000)])\n"
                "import sys; sys.stdin.read(); print('end')", env=self.path, input="")
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "end\n", ""))
            server.set(reads=True)
            server.wait(lambda: all(client.has_gone for client in server.clients),
                        "the end of the connection")


class Site(Case):
    def setUp(self):
        super().setUp()
        self.path = {"PYTHONPATH": str(PACKAGE / "site")}

    def test_no_import_is_needed(self):
        self.check_loop("", env=self.path)

    def test_the_one_that_it_shadows_runs(self):
        other = self.dir / "other"
        other.mkdir()
        (other / "sitecustomize.py").write_text("import sys\nsys.ran = __file__\nhere = 5\n")
        path = {"PYTHONPATH": f"{self.path['PYTHONPATH']}:{other}"}
        done = self.python(
            "import sys, sitecustomize\nprint(sys.ran, sitecustomize.here, 'cubeshim' in "
            "sys.modules)",
            env=path)
        self.assertEqual((done.stdout, done.stderr), (f"{other}/sitecustomize.py 5 True\n", ""))
        # Otherwise, the machine's own sitecustomize runs, if there is one.
        plain = self.python(
            "import sys\nprint(getattr(sys.modules.get('sitecustomize'), '__file__', None))")
        done = self.python(
            "import sys\nprint(getattr(sys.modules.get('sitecustomize'), '__file__', None))",
            env=self.path)
        ours = f"{PACKAGE}/site/sitecustomize.py\n"
        expected = plain.stdout if plain.stdout != "None\n" else ours
        self.assertEqual(done.stdout, expected)

    def test_two_copies_of_the_package_run_once_each(self):
        """Covers a second copy of the package, the same package under two paths, and a package
        made of symbolic links."""
        copy, linked, other = (self.dir / name for name in ("copy", "linked", "other"))
        shutil.copytree(PACKAGE, copy)
        (linked / "site").mkdir(parents=True)
        (linked / "site" / "sitecustomize.py").symlink_to(PACKAGE / "site" / "sitecustomize.py")
        (linked / "cubeshim").symlink_to(PACKAGE / "cubeshim")
        (self.dir / "alias").symlink_to(PACKAGE / "site")
        other.mkdir()
        (other / "sitecustomize.py").write_text("print('ran')\n")
        for places in ((copy / "site", PACKAGE / "site"), (PACKAGE / "site", self.dir / "alias",
                                                           PACKAGE / "site"), (linked / "site",)):
            done = self.python("import sys, cubeshim\nprint(cubeshim.__file__)",
                               env={"PYTHONPATH": ":".join(map(str, [*places, other]))})
            self.assertEqual((done.stdout, done.stderr),
                             (f"ran\n{places[0].parent}/cubeshim/__init__.py\n", ""))

    def test_an_old_python_is_left_alone(self):
        done = self.python(
            f"import runpy, sys\nsys.version_info = (3, 6, 15)\nbefore = list(sys.path)\n"
            f"runpy.run_path({str(PACKAGE / 'site' / 'sitecustomize.py')!r})\n"
            f"print('cubeshim' in sys.modules, sys.path == before)")
        self.assertEqual((done.stdout, done.stderr), ("False True\n", ""))

    def test_does_nothing_if_announcements_are_off(self):
        code = ("import sys\nprint([type(finder).__name__ for finder in sys.meta_path if "
                "type(finder).__module__ == 'cubeshim._hook'])")
        self.assertEqual(self.python(code, env=self.path).stdout, "['Finder']\n")
        self.assertEqual(
            self.python(code, env=self.path | {"CUBESHIM_ANNOUNCE": "0"}).stdout, "[]\n")

    def test_error_of_the_shadowed_module_is_reported(self):
        other = self.dir / "other"
        other.mkdir()
        (other / "sitecustomize.py").write_text("raise ValueError('mine')\n")
        done = self.python("print('on')", env={"PYTHONPATH": f"{self.path['PYTHONPATH']}:{other}"})
        self.assertEqual(done.stdout, "on\n")
        self.assertIn("ValueError: mine", done.stderr)


class Run(Case):
    """`cubeshim run`; CUBESHIM_COMMAND is its path."""
    PRINT = "import os, sys\nprint(os.environ.get('PYTHONPATH'), 'cubeshim' in sys.modules)"

    def run_command(self, code, *options, env=None):
        return self.python(code, before=self.command(*options), env=env)

    def command(self, *options):
        return [
            os.environ["CUBESHIM_COMMAND"], "run", "-p", self.dir, "--ram-dir", "/dev/shm",
            "--name", f"python-{os.getpid()}", *options, "--"
        ]

    def test_puts_the_package_in_front(self):
        done = self.run_command(self.PRINT, env={"PYTHONPATH": "/mine:/too"})
        self.assertEqual(done.stdout, f"{PACKAGE}/site:/mine:/too True\n", done.stderr)
        self.env.pop("PYTHONPATH", None)
        self.assertEqual(self.run_command(self.PRINT).stdout, f"{PACKAGE}/site True\n")

    def test_leaves_the_path_alone_with_no_announce(self):
        for words in (["--no-announce"], ["--announce", "0"], ["--announce", "1", "--no-announce"]):
            done = self.run_command(self.PRINT, *words, env={"PYTHONPATH": "/mine"})
            self.assertEqual(done.stdout, "/mine False\n", done.stderr)

    def test_a_program_that_embeds_python_has_it_too(self):
        program = self.dir / "trainer"
        shutil.copy("/usr/bin/printenv", program)
        done = subprocess.run([*self.command(), program, "PYTHONPATH"], env=self.env,
                              stdout=subprocess.PIPE, text=True, timeout=100)
        self.assertEqual(done.stdout, f"{PACKAGE}/site\n")

    def test_an_installed_command_finds_the_installed_package(self):
        to = self.dir / "prefix"
        subprocess.run(["cmake", "--install", os.environ["CUBESHIM_BUILD"], "--prefix", to],
                       check=True, capture_output=True)
        os.environ["CUBESHIM_COMMAND"], before = str(to / "bin" /
                                                     "cubeshim"), os.environ["CUBESHIM_COMMAND"]
        self.addCleanup(os.environ.update, CUBESHIM_COMMAND=before)
        package = to / "share" / "cubeshim" / "python"
        self.assertEqual(self.run_command(self.PRINT).stdout, f"{package}/site True\n")

    def test_library_without_the_package_logs_one_line(self):
        library = self.dir / "libcubeshim.so"
        shutil.copy(Path(os.environ["CUBESHIM_BUILD"], "libcubeshim.so"), library)
        for level, lines in (("info", 1), ("warn", 0)):
            # The child of this Python belongs to the same job, and announces nothing.
            done = self.python(
                "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'pass'])", env={
                    "LD_PRELOAD": str(library), "CUBESHIM_PREFIXES": str(self.dir),
                    "CUBESHIM_LOG": level, "CUBESHIM_STATS": "off",
                    "CUBESHIM_NAME": f"python-{os.getpid()}", "CUBESHIM_RAM_DIR": "/dev/shm"
                })
            self.assertEqual(
                done.stderr.count(
                    f"announce nothing: {library} has no directory site of the package cubeshim "
                    "beside it"
                ), lines, done.stderr)


if __name__ == "__main__":
    unittest.main()
