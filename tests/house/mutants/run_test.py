"""The tool itself, on a project of three files."""
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

RUN = Path(__file__).resolve().parent / "run.py"
CMAKE = """cmake_minimum_required(VERSION 3.25)
project(toy LANGUAGES NONE)
add_custom_target(toy ALL COMMAND /usr/bin/python3 -c "compile(open('${PROJECT_SOURCE_DIR}/toy.py').read(), 'toy', 'exec')" VERBATIM)
enable_testing()
function(toy name code)
  add_test(NAME toy.${name} COMMAND /usr/bin/python3 -c "${code}" WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(toy.${name} PROPERTIES ENVIRONMENT PYTHONDONTWRITEBYTECODE=1)
endfunction()
toy(sum "from toy import f$<SEMICOLON> assert f(1, 2) == 3")
toy(zero "from toy import f$<SEMICOLON> assert f(0, 0) == 0")
toy(leaves "import os, sys, toy$<SEMICOLON> open('/tmp/' + toy.NAME, 'w')$<SEMICOLON> open('/dev/shm/' + toy.NAME, 'w')$<SEMICOLON> os.fork() or (os.setsid(), os.closerange(0, 9), os.execlp('sleep', toy.NAME, '1000'))")
toy(broken "raise SystemExit(1)")
add_test(NAME house.mutants COMMAND /usr/bin/python3 -c "raise SystemExit(1)")
add_test(NAME toy.long COMMAND /usr/bin/python3 -c "raise SystemExit(1)")
set_tests_properties(toy.long PROPERTIES LABELS long)
"""
SOURCE = "NAME = '{}'\n\n\ndef f(a, b):\n    unused = 5\n    return a + b\n"


def row(old, new, **more):
    lines = ["[[mutant]]", 'file = "toy.py"', f"old = '''{old}'''", f"new = '''{new}'''", 'wrong = "sums are wrong"']
    return "\n".join(lines + [f"{name} = {value if value == 'true' else chr(34) + value + chr(34)}"
                              for name, value in ({"tests": "sum"} | more).items()]) + "\n"


class Tool(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="cubeshim-mutants-")
        self.addCleanup(folder.cleanup)
        self.name = Path(folder.name).name + "-left"
        self.source = SOURCE.format(self.name)
        self.root, self.work = Path(folder.name) / "root", Path(folder.name) / "work"
        self.root.mkdir()
        (self.root / "CMakeLists.txt").write_text(CMAKE)
        (self.root / "toy.py").write_text(self.source)
        (self.root / ".gitignore").write_text("rows.toml\n")
        subprocess.run(["git", "init", "-q", str(self.root)], check=True)

    def run_with(self, rows, *more):
        (self.root / "rows.toml").write_text(rows)
        command = [sys.executable, str(RUN), "--root", str(self.root), "--work", str(self.work), "--rows",
                   str(self.root / "rows.toml"), "--jobs", "1", *more]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual((self.root / "toy.py").read_text(), self.source, "the sources are as they were")
        return done.returncode, done.stdout

    def running(self, text):
        """Whether a process of this test's tree has the text in its command line."""
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if text.encode() in (process / "cmdline").read_bytes() and (
                        text == self.name or os.readlink(process / "cwd").startswith(str(self.work))):
                    return True
            except OSError:
                pass
        return False

    def test_a_fault_is_found_by_a_likely_test_or_by_another(self):
        (self.root / "CMakeLists.txt").write_text(CMAKE.replace('toy(broken "raise SystemExit(1)")\n', ""))
        status, said = self.run_with(row("a + b", "a + b + 1", tests="zero") + row("a + b", "a - b", tests="zero"))
        self.assertEqual(status, 0, said)
        self.assertIn("found by toy.zero", said)
        self.assertIn("found by toy.sum", said)
        self.assertEqual(said.count("not found by the tests that it names"), 1)
        self.assertIn("2 faults: 2 found, 0 survive (0 known), 0 are errors of the list", said)
        self.assertEqual((self.work / "tree/toy.py").read_text(), self.source)

    def test_a_survivor_fails_the_run_unless_it_is_known(self):
        status, said = self.run_with(row("= 5", "= 6"), "--likely")
        self.assertEqual(status, 1, said)
        self.assertIn("1 survive (0 known)", said)
        status, said = self.run_with(row("= 5", "= 6", survives="nobody reads it"))
        self.assertEqual(status, 0, said)
        self.assertIn("known: nobody reads it", said)
        status, said = self.run_with(row("a + b", "a", survives="nobody calls it"))
        self.assertEqual(status, 0, said)
        self.assertIn("the mark can go", said)

    def test_a_test_that_fails_anyway_has_found_nothing(self):
        status, said = self.run_with(row("= 5", "= 6", tests="broken"))
        self.assertEqual(status, 1, said)
        self.assertIn("toy.broken fails without the fault, too", said)
        self.assertIn("1 are errors of the list", said)

    def test_what_was_found_is_not_tried_again(self):
        rows = row("a + b", "a - b")
        self.assertIn("found by toy.sum", self.run_with(rows)[1])
        self.assertEqual(self.run_with(rows), (0, "1 faults: 1 found, 0 survive (0 known), 0 are errors of the list\n"))
        self.assertIn("found by toy.sum", self.run_with(rows, "--again")[1])
        self.source += "\n"
        (self.root / "toy.py").write_text(self.source)
        self.assertIn("found by toy.sum", self.run_with(rows)[1], "the source is another now")

    def test_only_the_short_ones(self):
        rows = row("a + b", "a - b", short="true") + row("a + b", "b")
        self.assertIn("1 faults: 1 found", self.run_with(rows, "--short")[1])

    def test_what_hangs_is_found_and_what_is_left_is_taken_away(self):
        began = row("return a + b", "while True: pass")
        left = row("= 5", "= 6", tests="leaves")
        status, said = self.run_with(began + left, "--likely", "--limit", "5")
        self.assertIn("no end within 5 s", said)
        if os.geteuid() != 0:
            self.skipTest("only root has namespaces")
        for folder in ("/tmp", "/dev/shm"):
            self.assertFalse((Path(folder) / self.name).exists())
        self.assertFalse(self.running(self.name))

    @unittest.skipIf(os.geteuid() != 0, "only root has namespaces")
    def test_a_tool_that_is_killed_leaves_nothing_that_runs(self):
        (self.root / "rows.toml").write_text(row("return a + b", "while True: pass"))
        command = [sys.executable, str(RUN), "--root", str(self.root), "--work", str(self.work), "--rows",
                   str(self.root / "rows.toml"), "--jobs", "1", "--likely"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as tool:
            while not self.running("import f; assert f(1, 2)"):
                self.assertIsNone(tool.poll())
            tool.kill()
        while self.running("import f; assert f(1, 2)"):
            pass

    def test_what_does_not_build_is_an_error_of_the_list(self):
        status, said = self.run_with(row("a + b", "a +", survives="x"))
        self.assertEqual(status, 1, said)
        self.assertIn("DOES NOT BUILD", said)
        self.assertIn("1 are errors of the list", said)

    def test_the_list_is_checked_before_anything_is_built(self):
        known = "".join(row("= 5", f"= {n}", survives="x") for n in range(6, 10))
        for rows, wrong in ((row(" = ", "c"), "is there 2 times"), (row("nowhere", "c"), "is there 0 times"),
                            (row("= 5", "= 5"), "are the same"), (row("= 5", "= 6", tests="("), "tests:"),
                            (row("= 5", "= 6", tests=""), "names no test"), (known, "at most 3 may"),
                            (row("= 5", "= 6", name="x"), "row 1"), (row("= 5", "= 6") * 2, "in the list twice"),
                            (row("= 5", "= 6").replace("sums are wrong", ""), "does not say"), ("", "no rows")):
            for more in ([], ["--check"]):
                status, said = self.run_with(rows, *more)
                self.assertEqual(status, 1, said)
                self.assertIn(wrong, said)
        self.assertFalse(self.work.exists())
        self.assertEqual(self.run_with(row("= 5", "= 6"), "--check"), (0, "1 faults fit the sources\n"))

    def test_a_name_that_no_test_has_is_an_error_of_the_list(self):
        for name in ("gone", "long"):
            status, said = self.run_with(row("= 5", "= 6", tests=name))
            self.assertEqual(status, 1, said)
            self.assertIn(f"no test of the short run has a name like {name}", said)


if __name__ == "__main__":
    unittest.main()
