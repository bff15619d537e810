"""`LD_PRELOAD=libcubeshim.so python train.py`, without the command: which programs get the package,
and which do not."""
import itertools
import os
import shutil
import subprocess
import sys
import unittest
import zipfile

from test_start import Case, PACKAGE, Path

LIBRARY = Path(os.environ["CUBESHIM_BUILD"]) / "libcubeshim.so"
SITE = PACKAGE / "site"
PRINT = "import os, sys; print(os.environ.get('PYTHONPATH'), 'cubeshim' in sys.modules)"

# The library keeps the name with which it was loaded, so its own leader does not replace the test's
# server.
ANOTHER_NAME = "import os; os.environ['CUBESHIM_NAME'] = 'test'\n"


class Bare(Case):
    def setUp(self):
        super().setUp()
        self.env.pop("PYTHONPATH", None)
        self.env.update(LD_PRELOAD=str(LIBRARY), CUBESHIM_NAME="library",
                        CUBESHIM_PREFIXES=str(self.dir), CUBESHIM_STATS="off")

    def of(self, program, *words, said="", **env):
        done = subprocess.run([program, *words], env=self.env | env, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=100)
        self.assertEqual((done.returncode > 0, done.stderr), (done.stdout == "", said))
        return done.stdout

    def print_of(self, *words, **env):
        return self.of("/usr/bin/python3", *words, "-c", PRINT, **env)

    def test_the_loop_announces(self):
        self.check_loop(ANOTHER_NAME)

    def test_workers_by_spawn_and_children_have_it_once(self):
        self.check_loop(ANOTHER_NAME, "dict(num_workers=2, multiprocessing_context='spawn')")
        chain = ("import os, sys; os.execv(sys.executable, [sys.executable, '-c', sys.argv[1], "
                 "*sys.argv[2:]])")
        self.assertEqual(self.of("/usr/bin/python3", "-c", chain, chain, PRINT), f"{SITE} True\n")
        shell = f"/usr/bin/python3 -c \"{PRINT}\""
        self.assertEqual(
            self.of("/usr/bin/python3", "-c", "import os, sys; os.system(sys.argv[1])", shell,
                    PYTHONPATH="/mine"), f"{SITE}:/mine True\n")

    def test_site_precedes_the_existing_path(self):
        self.assertEqual(self.print_of(PYTHONPATH="/mine:/too"), f"{SITE}:/mine:/too True\n")
        self.assertEqual(self.print_of(PYTHONPATH=""), f"{SITE} True\n")
        # The user has put another path in front, or a path that only begins with the same text.
        self.assertEqual(self.print_of(PYTHONPATH=f"/mine:{SITE}"), f"/mine:{SITE} True\n")
        self.assertEqual(self.print_of(PYTHONPATH=f"{SITE}s:/mine"), f"{SITE}:{SITE}s:/mine True\n")

    def test_does_nothing_if_announcements_are_off(self):
        for env in ({"CUBESHIM_ANNOUNCE": "0"}, {"CUBESHIM_PREFETCH": "0"},
                    {"CUBESHIM_MODE": "off"}):
            self.assertEqual(self.print_of(**env), "None False\n")
        nothing = ("cubeshim: warn: nothing is served: CUBESHIM_PREFIXES is not set; it names "
                   "the directories to serve\n")
        self.assertEqual(self.print_of(CUBESHIM_PREFIXES="", said=nothing), "None False\n")
        # Python does not read the variable.
        for word in ("-I", "-E"):
            self.assertEqual(self.print_of(word), f"{SITE} False\n")

    def test_python_by_its_name(self):
        pythons = ("python", "python2.7", "python3", "python3.13t", "python3.11d", "python3.11-dbg",
                   "python3.7m", "pypy3", "pypy3.10-c")
        others = ("printenv", "trainer", "pythonic", "python3-config", "bpython", "pypyjit",
                  "blender")
        for name in pythons + others:
            shutil.copy("/usr/bin/printenv", self.dir / name)
            with self.subTest(name):
                self.assertEqual(self.of(self.dir / name, "PYTHONPATH"),
                                 f"{SITE}\n" if name in pythons else "")
        # The program's real file decides, not the name by which it was started.
        (self.dir / "train").symlink_to(self.dir / "python3")
        self.assertEqual(self.of(self.dir / "train", "PYTHONPATH"), f"{SITE}\n")

    def test_a_venv(self):
        place = self.dir / "venv"
        for more in ((), ("--copies",)):
            subprocess.run(
                ["/usr/bin/python3", "-m", "venv", "--without-pip", "--clear", *more, place],
                check=True, timeout=100)
            code = PRINT + "; print(sys.prefix)"
            self.assertEqual(self.of(place / "bin" / "python", "-c", code),
                             f"{SITE} True\n{place}\n")

    def test_the_sitecustomize_that_would_have_run_runs(self):
        """Python would run the venv's sitecustomize, or the distribution's if that comes first."""
        place = self.dir / "venv"
        subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", place], check=True,
                       timeout=100)
        packages, = place.glob("lib/python*/site-packages")
        (packages / "sitecustomize.py").write_text("")
        for program in (place / "bin" / "python", "/usr/bin/python3"):
            words = (program, "-c", "import sitecustomize; print(sitecustomize.__file__)")
            self.assertEqual(self.of(*words), self.of(*words, LD_PRELOAD=""))

    def mine(self, text="print('mine')"):
        place = self.dir / "mine"
        place.mkdir(exist_ok=True)
        (place / "sitecustomize.py").write_text(text)
        return place

    def test_it_runs_where_the_working_directory_has_been_removed(self):
        """sys.path has relative entries, as in Pythons before 3.11, which copy them from
        PYTHONPATH."""
        code = ("import os, sys; os.rmdir(os.getcwd()); sys.path[:0] = ['relative', '', "
                f"{str(SITE)!r}, {str(self.mine())!r}]; import sitecustomize")
        gone = self.dir / "gone"
        gone.mkdir()
        done = subprocess.run(["/usr/bin/python3", "-S", "-c", code], cwd=gone, env=self.env,
                              text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=100)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "mine\n", ""))

    def test_one_of_a_finder_behind_pythons_own(self):
        """An editable install has such a finder."""
        code = f"""
import importlib.machinery, importlib.util, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name != 'sitecustomize':
            return None
        return importlib.util.spec_from_file_location(
            name, {str(self.mine() / 'sitecustomize.py')!r})
sys.meta_path.append(Finder())
# Debian's Python has a sitecustomize of its own.
sys.path = [place for place in sys.path if 'dist-packages' not in place
            and not importlib.machinery.PathFinder.find_spec('sitecustomize', [place])]
sys.path.insert(0, {str(SITE)!r})
import sitecustomize"""
        self.assertEqual(self.of("/usr/bin/python3", "-S", "-c", code), "mine\n")

    def test_one_in_a_zip_file(self):
        """Up to Python 3.9, the loader of zip files has another method. Here, a finder returns a
        loader of that kind."""
        archive = self.dir / "mine.zip"
        with zipfile.ZipFile(archive, "w") as made:
            made.writestr("sitecustomize.py", "print('mine', __file__)")
        self.assertEqual(self.of("/usr/bin/python3", "-c", "", PYTHONPATH=str(archive)),
                         f"mine {archive}/sitecustomize.py\n")
        code = f"""
import importlib.machinery, importlib.util, sys, zipimport
class Loader:
    def load_module(self, name):
        return zipimport.zipimporter({str(archive)!r}).load_module(name)
class Finder:
    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, Loader()) if name == 'sitecustomize' else None
sys.meta_path.append(Finder())
sys.path[:] = [{str(SITE)!r}]
import sitecustomize
print(sitecustomize.__file__, hasattr(sitecustomize, 'run_shadowed'))"""
        self.assertEqual(self.of("/usr/bin/python3", "-S", "-c", code, PYTHONWARNINGS="ignore"),
                         f"mine {archive}/sitecustomize.py\n{archive}/sitecustomize.py False\n")

    def test_one_that_looks_for_the_next_by_itself(self):
        """Monitoring agents search in all of sys.path except their own directory."""
        agent = """
import importlib.machinery, importlib.util, os, sys
print('agent')
others = [place for place in sys.path if place != os.path.dirname(__file__)]
spec = importlib.machinery.PathFinder.find_spec('sitecustomize', others)
if spec is not None:
    module = sys.modules['sitecustomize'] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
"""
        (self.dir / "next").mkdir()
        (self.dir / "next" / "sitecustomize.py").write_text("print('next')")
        code = "import sitecustomize; print(sitecustomize.__file__)"
        for others in ("", f":{self.dir / 'next'}"):
            path = f"{self.mine(agent)}{others}"
            with_it = self.of("/usr/bin/python3", "-c", code, PYTHONPATH=path)
            self.assertEqual(
                with_it, self.of("/usr/bin/python3", "-c", code, PYTHONPATH=path, LD_PRELOAD=""))

    def test_a_long_variable_leaves_room_for_other_programs(self):
        """This is the longest string that the kernel accepts."""
        longest = "/" + "x" * (32 * 4096 - len("PYTHONPATH=/") - 1)
        code = ("import os, subprocess; print(subprocess.run(['/bin/true']).returncode, "
                "len(os.environ['PYTHONPATH']))")
        for less, added in ((0, 0), (len(f"{SITE}:") - 1, 0), (len(f"{SITE}:"), len(f"{SITE}:"))):
            value = longest[:len(longest) - less]
            self.assertEqual(self.of("/usr/bin/python3", "-c", code, PYTHONPATH=value),
                             f"0 {len(value) + added}\n")

    @unittest.skipIf(os.geteuid() != 0, "needs root, for another user's files")
    def test_not_a_package_that_another_user_put_beside_the_library(self):
        """The directory is like /tmp, to which all users may write."""
        root, other, third = 0, 65534, 12345
        place, spoiled = self.dir / "tmp", self.dir / "spoiled"
        place.mkdir()
        shutil.copy(LIBRARY, place)
        (place / "site").mkdir()
        shutil.copytree(PACKAGE / "cubeshim", place / "cubeshim")
        (place / "site" / "sitecustomize.py").write_text(f"open({str(spoiled)!r}, 'w')")
        library = place / LIBRARY.name
        cases = [(root, root, root, 0o755, True), (other, root, root, 0o755, False),
                 (root, other, root, 0o755, False), (root, root, root, 0o777, False),
                 (other, other, other, 0o755, True), (third, other, other, 0o755, False)]
        for of_site, of_file, of_library, mode, runs in cases:
            with self.subTest(of_site=of_site, of_file=of_file, of_library=of_library, mode=mode):
                spoiled.unlink(missing_ok=True)
                for path, owner in ((place / "site", of_site), (place / "site/sitecustomize.py",
                                                                of_file), (library, of_library)):
                    os.chown(path, owner, owner)
                (place / "site").chmod(mode)
                self.print_of(LD_PRELOAD=str(library))
                self.assertEqual(spoiled.exists(), runs)
                spoiled.unlink(missing_ok=True)
        # The user owns the whole directory, except the package next to it.
        shutil.copy(SITE / "sitecustomize.py", place / "site")
        for path in (place / "site", place / "site/sitecustomize.py", library):
            os.chown(path, root, root)
        for owner, mode, runs in ((root, 0o755, True), (other, 0o755, False), (root, 0o757, False)):
            os.chown(place / "cubeshim", owner, owner)
            (place / "cubeshim").chmod(mode)
            self.assertEqual(self.print_of(LD_PRELOAD=str(library)), f"{place}/site {runs}\n")

    def test_places_of_the_package(self):
        """Covers the package of a wheel, an installed package, and no package."""
        wheel, alone, odd = (self.dir / name for name in ("wheel/cubeshim", "alone", "o:dd"))
        shutil.copytree(PACKAGE / "cubeshim", wheel)
        shutil.copytree(SITE, wheel / "site")
        (wheel.parent / "other.py").write_text(
            "")  # a neighbour, perhaps for another Python, which must not be found
        shutil.copytree(wheel, odd)
        alone.mkdir()
        for place in (wheel, alone, odd):
            shutil.copy(LIBRARY, place)
        code = PRINT + "; import importlib.util; print(importlib.util.find_spec('other'))"
        self.assertEqual(
            self.of("/usr/bin/python3", "-c", code, LD_PRELOAD=str(wheel / LIBRARY.name)),
            f"{wheel}/site True\nNone\n")
        self.assertEqual(self.print_of(LD_PRELOAD=str(alone / LIBRARY.name)), "None False\n")
        # Neither the loader nor PYTHONPATH supports a colon in a path, so a link leads there.
        (self.dir / "link").symlink_to(odd)
        self.assertEqual(self.print_of(LD_PRELOAD=str(self.dir / "link" / LIBRARY.name)),
                         "None False\n")
        # A library in PREFIX/lib/MACHINE, as in Debian.
        shutil.copytree(PACKAGE, self.dir / "usr" / "share" / "cubeshim" / "python")
        shutil.copytree(alone, self.dir / "usr" / "lib" / "x86_64-linux-gnu")
        library = self.dir / "usr" / "lib" / "x86_64-linux-gnu" / LIBRARY.name
        self.assertEqual(self.print_of(LD_PRELOAD=str(library)),
                         f"{self.dir}/usr/share/cubeshim/python/site True\n")
        to = self.dir / "prefix"
        subprocess.run(["cmake", "--install", os.environ["CUBESHIM_BUILD"], "--prefix", to],
                       check=True, capture_output=True)
        library, = itertools.chain(to.glob("lib/*.so"), to.glob("lib/*/*.so"),
                                   to.glob("lib64/*.so"))
        self.assertEqual(self.print_of(LD_PRELOAD=str(library)),
                         f"{to}/share/cubeshim/python/site True\n")


if __name__ == "__main__":
    sys.exit(unittest.main())
