"""Runs CPython's own test suite under the library. Every test that passes natively must pass in
every mode.

    cpython.py --build BUILD_DIR [--set quick|all] [--modules NAME ...] [--columns NAME ...] [--work
    DIR] [--jobs N]

Runs `python3 -m test` of the Debian package libpython3.11-testsuite for each module, first without
the library and then in each column (`--help` lists them), with the tests' working directory as the
prefix, and compares the results of each test method. A method that passes natively but not in a
column is tried up to three times in both. A test that always passes natively and never in the
column is lost. Otherwise it is flaky. The exit reports show whether the library served files at
all. Logs stay in DIR if something went wrong, or if --work was given. Exit status: 0, 1 if a pass
is lost or the library did not serve, 2 if the suite cannot run here.
"""

from __future__ import annotations

import importlib.util
import sys

import suite_report
from cpython_run import RESOURCES, PythonRuns
from suite_run import COLUMNS, CannotRun

QUICK = (
    "test_io test_subprocess test_tarfile test_zipfile test_pathlib test_os test_tempfile "
    "test_shutil test_fileio test_file test_bufio test_posix test_posixpath test_mmap test_glob "
    "test_fcntl test_select test_linecache test_fileinput test_filecmp test_import test_zipimport "
    "test_pty test_fork1 test_wait4 test_resource test_dbm test_dbm_dumb"
).split()
SLOW = (
    "test_multiprocessing_fork test_multiprocessing_spawn test_multiprocessing_forkserver "
    "test_multiprocessing_main_handling test_concurrent_futures test_asyncio test_largefile "
    "test_selectors test_socket test_signal test_threading test_faulthandler test_mailbox "
    "test_importlib test_runpy test_compileall test_py_compile test_gzip test_bz2 test_lzma "
    "test_pickle test_shelve test_wave test_dbm_gnu test_cmd_line test_cmd_line_script "
    "test_httpservers test_logging test_xml_etree test_tokenize test_fileutils test_posixpath "
    "test_genericpath test_stat test_poll test_epoll test_eintr test_file_eintr test_fork1 "
    "test_ioctl test_openpty test_popen test_site test_venv test_zipapp test_pkgutil"
).split()
# Modules that are known to read files of their working directory. Files must have been served in
# each of them. (The process that writes the files of test_mmap also maps them, so they are left to
# the kernel as long as it lives.)
READERS = {
    "test_io", "test_fileio", "test_file", "test_bufio", "test_os", "test_shutil", "test_pathlib",
    "test_tarfile", "test_zipfile", "test_linecache", "test_fileinput", "test_filecmp",
    "test_import", "test_zipimport", "test_dbm_dumb"
}


def main() -> int:
    parser = suite_report.parser(__doc__)
    parser.add_argument("--set", choices=RESOURCES, default="quick")
    parser.add_argument("--modules", nargs="+")
    options = parser.parse_args()
    modules = options.modules or list(
        dict.fromkeys(QUICK if options.set == "quick" else QUICK + SLOW))

    def body(library, scratch, ram, columns) -> int:
        missing = [name for name in modules if importlib.util.find_spec(f"test.{name}") is None]
        if missing:
            raise CannotRun(
                f"{sys.executable} has no {' '.join(missing)}; install libpython3.11-testsuite "
                "(make deps-test)"
            )
        runs = PythonRuns(library, scratch, ram, options.timeout, RESOURCES[options.set])
        return suite_report.compare(modules, runs.test, columns, options.jobs, READERS)

    return suite_report.main(options, COLUMNS, body)


if __name__ == "__main__":
    sys.exit(main())
