"""Tests the tool itself, on a project of one program."""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import fold

RUN = Path(__file__).resolve().parent / "run.py"
CMAKE = """cmake_minimum_required(VERSION 3.25)
project(toy LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 20)
add_executable(toy toy.cc)
enable_testing()
add_test(NAME toy.sum COMMAND toy 1 2 3)
add_test(NAME toy.zero COMMAND toy 0 0 0)
add_test(NAME toy.least COMMAND toy 0 -1 0)
add_test(NAME toy.cleared COMMAND env -i $<TARGET_FILE:toy> 0 3 3)
add_test(NAME toy.leaves COMMAND /usr/bin/python3 ${CMAKE_SOURCE_DIR}/leaving.py @NAME@)
add_test(NAME toy.meets COMMAND /usr/bin/python3 ${CMAKE_SOURCE_DIR}/meeting.py @NAME@)
add_test(NAME toy.broken COMMAND toy 1 1 1)
add_test(NAME house.mutants COMMAND toy 1 1 1)
add_test(NAME toy.long COMMAND toy 1 1 1)
set_tests_properties(toy.long PROPERTIES LABELS long)
"""
SOURCE = """#include <cstdlib>

constexpr int k_first = 0;

constexpr int at_least(int least, int n) {
  return n < least ? least : n;
}
static_assert(at_least(1, 0) == 1);

int nowhere() { return 7; }

int f(int a, int b) {
  int unused = 5;
  static_cast<void>(unused);
  const int sum = a + b;
  return at_least(k_first, sum);
}

int main(int count, char** word) {
  return count == 4 && f(std::atoi(word[1]), std::atoi(word[2])) == std::atoi(word[3]) ? 0 : 1;
}
"""
# Leaves two files and a process.
LEAVING = """import os, sys

name = sys.argv[1]
open(f"/tmp/{name}", "w")
open(f"/dev/shm/{name}", "w")
os.fork() or (os.setsid(), os.closerange(0, 9), os.execlp("sleep", name, "1000"))
"""
# Fails if two copies of this script run at the same time, each with a fault.
MEETING = """import os, socket, sys
if os.environ["MUTANT_FAULT"] == "0":
    sys.exit(0)
with socket.socket(socket.AF_UNIX) as here, socket.socket(socket.AF_UNIX) as there:
    here.settimeout(30)
    name = chr(0) + sys.argv[1]
    try:
        here.bind(name)
        here.listen()
        here.accept()
    except TimeoutError:
        sys.exit(0)
    except OSError:
        there.settimeout(30)
        while there.connect_ex(name) != 0:
            pass
    sys.exit(1)
"""
NEVER_ENDS = "for (volatile int i = 0;;) i = i;"


def row(old, new, **more):
    lines = [
        "[[mutant]]", 'file = "toy.cc"', f"old = '''{old}'''", f"new = '''{new}'''",
        'wrong = "sums are wrong"'
    ]
    return ("\n".join(lines + [
        f"{name} = {value if value == 'true' else chr(34) + value + chr(34)}"
        for name, value in ({"tests": "sum"} | more).items()
    ]) + "\n")


class Tool(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="cubeshim-mutants-")
        cls.addClassCleanup(folder.cleanup)
        cls.name = Path(folder.name).name + "-left"
        # One build for all tests, so that each compiles only its own faults.
        cls.root, cls.work = Path(folder.name) / "root", Path(folder.name) / "work"
        cls.root.mkdir()
        (cls.root / "CMakeLists.txt").write_text(CMAKE.replace("@NAME@", cls.name))
        (cls.root / "leaving.py").write_text(LEAVING)
        (cls.root / "meeting.py").write_text(MEETING)
        (cls.root / ".gitignore").write_text("rows.toml\n")
        subprocess.run(["git", "init", "-q", str(cls.root)], check=True)

    def setUp(self):
        for kept in self.work.glob("*.json"):
            kept.unlink()
        self.source = SOURCE
        (self.root / "toy.cc").write_text(self.source)

    def command(self, rows, *more):
        (self.root / "rows.toml").write_text(rows)
        return [
            sys.executable,
            str(RUN),
            str(self.root / "rows.toml"), "--root",
            str(self.root), "--work",
            str(self.work), "--jobs", "1", *more
        ]

    def run_with(self, rows, *more):
        done = subprocess.run(self.command(rows, *more), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        self.assertEqual((self.root / "toy.cc").read_text(), self.source,
                         "the sources are as they were")
        return done.returncode, done.stdout

    def running(self, text):
        """Returns True if a process of this test's tree has the text in its command line."""
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if text.encode() in (process /
                                     "cmdline").read_bytes() and (text == self.name or os.readlink(
                                         process / "cwd").startswith(str(self.work))):
                    return True
            except OSError:
                pass
        return False

    def test_a_fault_is_found_by_a_named_test_or_by_one_that_reaches_its_place(self):
        status, said = self.run_with(
            row("a + b", "a + b + 1", tests="zero") + row("a + b", "a - b", tests="zero") +
            row("n < least", "false", tests="", part="cli"))
        self.assertEqual(status, 0, said)
        self.assertIn("found by toy.zero", said)
        self.assertEqual(len(re.findall("found by toy.(sum|least|cleared)", said)), 2, said)
        self.assertEqual(said.count("not found by the tests that it names"), 1)
        self.assertIn("toy.broken fails without a fault", said)
        self.assertIn("cli             1      1  100 %\nother           2      2  100 %\n", said)
        self.assertIn("3 faults: 3 found, 0 survive (0 known), 0 are errors of the list", said)
        reached = {
            name: len(seen["reached"])
            for name, seen in json.loads((self.work / "tests.json").read_text())["tests"].items()
        }
        # Only root has namespaces, in which a program without an environment finds the variables.
        cleared = 3 if os.geteuid() == 0 else 0
        self.assertEqual(
            reached, {
                "toy.sum": 3, "toy.zero": 3, "toy.least": 3, "toy.broken": 3, "toy.leaves": 0,
                "toy.cleared": cleared, "toy.meets": 0
            })

    @unittest.skipIf(os.geteuid() != 0, "only root has namespaces")
    def test_a_program_without_an_environment_has_the_fault(self):
        status, said = self.run_with(row("a + b", "a - b", tests="cleared"))
        self.assertEqual(status, 0, said)
        self.assertIn("found by toy.cleared", said)

    def test_a_fault_that_no_test_reaches_survives_without_a_run(self):
        status, said = self.run_with(row("return 7", "return 8", tests=""))
        self.assertEqual(status, 1, said)
        self.assertIn("SURVIVES 0 tests", said)
        self.assertIn("0 %", said)

    def test_fault_that_cannot_be_switched_is_built_separately(self):
        rows = (row("k_first = 0", "k_first = 9") + row("a + b", "a - b", **{"as": "build"}) +
                row("a + b", "a * b", tests=""))
        status, said = self.run_with(rows)
        self.assertEqual(status, 0, said)
        self.assertEqual(said.count("found by toy."), 3, said)
        copy = (self.work / "tree/toy.cc").read_text()
        self.assertIn("k_first = 0", copy)
        self.assertNotIn("a - b", copy)
        self.assertIn("a * b", copy)

    def test_one_of_ten_faults_of_a_part_may_survive(self):
        found = "".join(row("a + b", f"a + b + {n}", part="large") for n in range(1, 10))
        status, said = self.run_with(found + row("= 5", "= 6", part="large"), "--likely")
        self.assertEqual(status, 0, said)
        self.assertIn("large          10      9   90 %", said)
        # Faults that were found in other parts do not count for this one.
        status, said = self.run_with(
            found + row("= 5", "= 6", part="cli") + row("a + b", "b", part="cli"), "--likely")
        self.assertEqual(status, 1, said)
        self.assertIn("cli             2      1   50 %", said)

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

    def test_several_faults_are_tried_at_the_same_time(self):
        status, said = self.run_with(
            row("a + b", "b + a", tests="meets") + row("= 5", "= 6", tests="meets"), "--likely")
        self.assertEqual(status, 0, said)
        self.assertEqual(said.count("found by toy.meets"), 2, said)

    def test_failure_without_the_fault_does_not_count(self):
        status, said = self.run_with(row("= 5", "= 6", tests="broken"))
        self.assertEqual(status, 1, said)
        self.assertIn("toy.broken fails without the fault, too", said)
        self.assertIn("1 are errors of the list", said)

    def test_a_fault_that_was_found_is_not_tried_again(self):
        rows = row("a + b", "a - b")
        self.assertIn("found by toy.sum", self.run_with(rows)[1])
        status, said = self.run_with(rows)
        self.assertEqual(status, 0, said)
        self.assertNotIn("found by", said)
        self.assertIn("1 faults: 1 found", said)
        self.assertIn("found by toy.sum", self.run_with(rows, "--again")[1])
        self.source += "\n"
        (self.root / "toy.cc").write_text(self.source)
        self.assertIn("found by toy.sum", self.run_with(rows)[1], "the source is another now")

    def test_only_the_short_ones_or_those_of_a_part(self):
        rows = row("a + b", "a - b", short="true") + row("a + b", "b", part="large")
        self.assertIn("1 faults: 1 found", self.run_with(rows, "--short")[1])
        self.assertIn("large           1      1  100 %", self.run_with(rows, "--part", "large")[1])

    def test_a_test_that_hangs_finds_a_fault_and_leaves_nothing(self):
        status, said = self.run_with(
            row("static_cast<void>(unused)", NEVER_ENDS) + row("= 5", "= 6", tests="leaves"),
            "--likely", "--limit", "5")
        self.assertIn("1 found, 1 survive", said)
        if os.geteuid() != 0:
            self.skipTest("only root has namespaces")
        for folder in ("/tmp", "/dev/shm"):
            self.assertFalse((Path(folder) / self.name).exists())
        self.assertFalse(self.running(self.name))

    @unittest.skipIf(os.geteuid() != 0, "only root has namespaces")
    def test_a_tool_that_is_killed_leaves_nothing_that_runs(self):
        program = str(self.work / "build/toy")
        with subprocess.Popen(
                self.command(row("static_cast<void>(unused)", NEVER_ENDS), "--likely"),
                stdout=subprocess.DEVNULL,
        ) as tool:
            while not self.running(program):
                self.assertIsNone(tool.poll())
            tool.kill()
        while self.running(program):
            pass

    def test_a_fault_that_does_not_build_is_an_error_of_the_list(self):
        status, said = self.run_with(row("a + b", "a +", survives="x") + row("a + b", "a - b"))
        self.assertEqual(status, 1, said)
        self.assertIn("cannot be switched", said)
        self.assertIn("DOES NOT BUILD", said)
        self.assertIn("1 found, 0 survive (0 known), 1 are errors of the list", said)

    def test_the_list_is_checked_before_anything_is_built(self):
        known = "".join(row("= 5", f"= {n}", survives="x") for n in range(6, 10))
        marks = {path: path.stat().st_mtime_ns for path in self.work.rglob("*")}
        for rows, wrong in ((row(" = ", "c"), "is there 3 times"), (row("otherwise",
                                                                        "c"), "is there 0 times"),
                            (row("= 5",
                                 "= 5"), "are the same"), (row("= 5", "= 6", tests="("),
                                                           "tests:"), (known, "at most 3 may"),
                            (row("= 5", "= 6",
                                 name="x"), "row 1"), (row("= 5", "= 6") * 2, "in the list twice"),
                            (row("= 5", "= 6", **{"as": "x"}),
                             "not statement"), (row("= 5", "= 6", part="x"), "there is no part x"),
                            (row("= 5", "= 6").replace("sums are wrong",
                                                       ""), "does not say"), ("", "no rows"),
                           ):
            for more in ([], ["--check"]):
                status, said = self.run_with(rows, *more)
                self.assertEqual(status, 1, said)
                self.assertIn(wrong, said)
        self.assertEqual({path: path.stat().st_mtime_ns for path in self.work.rglob("*")}, marks)
        self.assertEqual(self.run_with(row("= 5", "= 6"), "--check"),
                         (0, "1 faults fit the sources\n"))

    def test_a_name_that_no_test_has_is_an_error_of_the_list(self):
        for name in ("gone", "long"):
            status, said = self.run_with(row("= 5", "= 6", tests=name))
            self.assertEqual(status, 1, said)
            self.assertIn(f"no test of the short run has a name like {name}", said)


class Fold(unittest.TestCase):
    def folded(self, source, *changes):
        """Returns the source with all faults as <A: wrong | right >, without its first line and
        without spaces."""
        done = fold.fold(source,
                         [fold.Fault(i, old, new) for i, (old, new) in enumerate(changes, 1)],
                         "x.h")
        self.left = done.left
        text = done.text.partition("\n")[2].replace("\n} else {\n", "|").replace("\n} }", ">")
        for i, name in enumerate("AB", 1):
            text = text.replace(f"{{ if (CUBESHIM_FAULT({i})) {{\n", f"<{name}:")
        return "".join(text.split())

    def expect(self, source, wanted, *changes):
        self.assertEqual(self.folded(source, *changes), "".join(wanted.split()))

    def test_a_statement_is_switched_as_a_whole(self):
        self.expect("void f() { a(); b(1, 2); c(); }",
                    "void f() { a(); <A: b(1); | b(1, 2); > c(); }", ("1, 2", "1"))
        self.expect("int f() { if (a && b) return 1; return 2; }",
                    "int f() { <A: if (a) return 1; | if (a && b) return 1; > return 2; }",
                    (" && b", ""))

    def test_a_declaration_is_switched_with_the_rest_of_its_block(self):
        self.expect(
            "int f() { a(); { const int n = 1; b(n); } c(); }",
            "int f() { a(); { <A: const int n = 2; b(n); | const int n = 1; b(n); > } c(); }",
            ("n = 1", "n = 2"))
        self.expect(
            "void f() { std::unique_ptr<T> p(1); p(); }",
            "void f(){ <A: std::unique_ptr<T> p(2); p(); | std::unique_ptr<T> p(1); p(); > }",
            ("(1)", "(2)"))

    def test_a_branch_is_switched_by_itself(self):
        self.expect("void f() { if (a) b(); else if (c) d(); else e(); }",
                    "void f() { if (a) <A: x(); | b(); > else if (c) d(); else e(); }",
                    ("b()", "x()"))
        self.expect("void f() { if (a) b(); else if (c) d(); else e(); }",
                    "void f() { if (a) b(); else if (c) d(); else <A: x(); | e(); > }",
                    ("e()", "x()"))

    def test_text_that_comes_in_between_goes_with_the_statement_before_it(self):
        self.expect("void f() { a(); b(); }", "void f() { <A: a(); x(); | a(); > b(); }",
                    ("a();", "a(); x();"))
        self.expect("void f() { a(); b(); }", "void f() { <A: x(); a(); | a(); > b(); }",
                    ("{ a();", "{ x(); a();"))

    def test_faults_of_one_statement_are_all_in_it(self):
        self.expect("void f() { g(a, b); }", "void f() { <A: g(a); | <B: g(b); | g(a, b); > > }",
                    (", b", ""), ("a, ", ""))
        self.expect("void f() { while (a) { b(); } }",
                    "void f() { <A: while (x) { b(); } | while (a) { <B: y(); | b(); > } > }",
                    ("(a)", "(x)"), ("b()", "y()"))

    def test_a_label_stays_where_it_is(self):
        self.expect("void f() { switch (a) { case 1: return b; case 2: c(); } }",
                    "void f() { switch (a) { case 1: <A: return x; | return b; > case 2: c(); } }",
                    ("case 1: return b", "case 1: return x"))

    def test_text_outside_the_body_of_a_function_is_left(self):
        for source, old in (("constexpr int k = 1;",
                             "1"), ("struct S { S() : a_(1) {} int a_; };",
                                    "1"), ("#define X 1\nint f() { return X; }",
                                           "1"), ("enum class E { a, b };", "a, "),
                            ("void f() { switch (a) { case 1: b(); } }", "case 1:"),
                           ):
            with self.subTest(source):
                self.expect(source, source, (old, "2"))
                self.assertEqual(self.left, [1])

    def test_a_comment_is_never_cut(self):
        self.expect("void f() { a(); // first\n  b(); }",
                    "void f() { a(); <A: // first\n | // first\n b(); > }", ("\n  b();", ""))
        self.expect("void f() { // first\n  b(); }",
                    "void f() { <A: // fir \n x(); | // first\n b(); > }", ("st\n  b()", "\n x()"))

    def test_bracket_in_a_text_or_comment_is_ignored(self):
        self.expect(
            """void f() { a("}{", '{', R"x({)x"); /* } */ b(); // {
            c(); }""", """void f() { a("}{", '{', R"x({)x"); /* } */ <A: x(); | b(); > // {
            c(); }""", ("b()", "x()"),
        )


if __name__ == "__main__":
    unittest.main()
