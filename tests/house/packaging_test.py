"""Tests the rules by which `make dist` checks a release, and the parts of `make dist` that need no
compiler.

    packaging_test.py ROOT LIBRARY      LIBRARY: libcubeshim.so as this machine's compiler built it
"""

import ast
import importlib
import os
import re
import sys
import unittest
from pathlib import Path

ROOT, LIBRARY = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
sys.path.insert(0, str(ROOT / "packaging"))
sys.dont_write_bytecode = True
symbols, targets, wheels = (
    importlib.import_module(name) for name in ("symbols", "targets", "wheels"))


class Symbols(unittest.TestCase):
    def test_a_library_fits_the_libc_that_it_was_made_with(self):
        own = os.confstr("CS_GNU_LIBC_VERSION").split()[1]
        symbols.check(LIBRARY, own)

    def test_library_does_not_fit_a_much_older_libc(self):
        """The library from this machine's compiler needs newer symbols."""
        with self.assertRaisesRegex(
                SystemExit, r"libcubeshim.so: does not run with glibc 2\.3: .*GLIBC_2\.\d+"):
            symbols.check(LIBRARY, "2.3")

    def test_versions_are_numbers(self):
        row = "     7: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND f@GLIBC_2.4 (2)\n"
        self.assertEqual(symbols.too_young(row, "2.17"), [])


class Wheel(unittest.TestCase):
    def test_page_has_no_relative_links(self):
        page = wheels.metadata()
        self.assertIn(f"\nVersion: {targets.version()}\n", page)
        self.assertEqual(re.findall(r"\]\((?!http)[^)]*\)", page), [])
        pages = ROOT / "doc"
        documents = {
            str(path.relative_to(pages).with_suffix("")).lower()
            for path in pages.rglob("*.md")
        }
        named = set(re.findall(r"`cubeshim docs ([\w/]+)`", page))
        self.assertLess(5, len(named))
        self.assertLessEqual(named, documents)
        self.assertNotIn("doc/", page)

    def test_the_package_has_the_version_of_the_library(self):
        text = (ROOT / "prefetch/python/cubeshim/__init__.py").read_text()
        self.assertIn(f'\n__version__ = "{targets.version()}"\n', text)

    def test_the_stubs_have_the_signatures_of_the_package(self):
        package = ROOT / "prefetch/python/cubeshim"

        def arguments(path, wanted):
            return {
                node.name: ast.unparse(without_hints(node.args))
                for node in ast.walk(ast.parse(path.read_text()))
                if isinstance(node, ast.FunctionDef) and node.name in wanted
            }

        def without_hints(args):
            for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg):
                if arg is not None:
                    arg.annotation = None
            return args

        for source, stub, names in (("__init__.py", "__init__.pyi", {"announce"}),
                                    ("ray/_env.py", "ray/__init__.pyi", {"env"}),
                                    ("ray/_loader.py", "ray/__init__.pyi", {"__init__"})):
            found = arguments(package / source, names)
            self.assertEqual(found, arguments(package / stub, names))
            self.assertEqual(set(found), names)
        self.assertTrue((package / "py.typed").exists())

    def test_tags_name_the_oldest_glibc(self):
        self.assertEqual(targets.TARGETS["x86_64"].wheel,
                         "manylinux_2_17_x86_64.manylinux2014_x86_64")


class Components(unittest.TestCase):
    def test_each_header_only_dependency_has_a_licence(self):
        sbom, sysroot = importlib.import_module("sbom"), importlib.import_module("sysroot")
        self.assertEqual(set(sbom.LICENCES),
                         {*sysroot.HEADER_PACKAGES, *sysroot.SOURCE_PACKAGES.values()})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
