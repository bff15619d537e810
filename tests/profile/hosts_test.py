"""Programs that a profiler could harm: small stacks, vfork, the loader's lock, cancellation, and
jumps out of handlers. CUBESHIM_LIBRARY and PROFILE_HOST name the build's files."""
import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
from tests.preload.stopped import GETPPID, Stopped  # noqa: E402

LIBRARY, HOST = os.environ["CUBESHIM_LIBRARY"], os.environ["PROFILE_HOST"]
# In raw_format.h: SiteCount, OpenCount, DropCount.
NS, ERRORS, CLOSED, UNREAD, STAT_FIRST, STAT_FIRST_US, NO_NATIVE = 2, 5, 0, 1, 5, 6, 4


class Process:
    """The contents of one raw file."""
    def __init__(self, text):
        lines = [line.split("\t") for line in text.splitlines()]
        self.sites = [line for line in lines if line[0] == "site"]
        self.start_ns, self.end_ns = int(lines[0][4]), int(lines[0][5])
        self.bins = [(int(line[1]), int(line[2])) for line in lines if line[0] == "bin"]
        self.sections = sum(line[0] == "cubeshim-profile" for line in lines)
        self.dropped = [
            sum(int(line[1].split(",")[i])
                for line in lines
                if line[0] == "dropped")
            for i in range(5)
        ]

    def count(self, kind, column=6, number=0):
        return sum(int(site[column].split(",")[number]) for site in self.sites if site[2] == kind)


class Hosts(unittest.TestCase):
    def setUp(self):
        self.data, self.out = (Path(
            self.enterContext(tempfile.TemporaryDirectory(prefix="cubeshim-hosts-")))
                               for _ in range(2))
        (self.data / "file").write_bytes(bytes(1000))
        self.name = f"hosts-{os.getpid()}-{self.id().rsplit('.', 1)[-1]}"[:64]
        self.addCleanup(
            lambda: Path(f"/dev/shm/cubeshim-{os.geteuid()}-{self.name}").unlink(missing_ok=True))

    def start_host(self, what, before=":", file="file", **settings):
        clean = {k: v for k, v in os.environ.items() if not k.startswith("CUBESHIM_")}
        env = clean | {
            "CUBESHIM_PREFIXES": str(self.data), "CUBESHIM_NAME": self.name, "CUBESHIM_RAM": "64M",
            "CUBESHIM_STATS": "off", "CUBESHIM_PROFILE": f"{self.out}/raw.%p",
            "CUBESHIM_PROFILE_EVERY": "1", **settings
        }
        script = f'{before}; LD_PRELOAD={LIBRARY} exec "$@"'
        return subprocess.Popen(["sh", "-c", script, "sh", HOST, what,
                                 str(self.data / file)], env=env, stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run_host(self, what, **options):
        host = self.start_host(what, **options)
        try:
            out, errors = host.communicate(timeout=60)
        finally:
            host.kill()
        return subprocess.CompletedProcess(host.args, host.returncode, out, errors)

    def processes(self):
        """Returns the processes that have recorded something, by pid. The program's own process is
        the first."""
        files = sorted(self.out.iterdir(), key=lambda path: int(path.suffix[1:]))
        return [Process(file.read_text()) for file in files]

    def processes_of(self, what, **settings):
        done = self.run_host(what, **settings)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return self.processes()

    def test_a_thread_with_a_stack_of_16_kilobytes_lives(self):
        for observe in "01":
            (process,) = self.processes_of("small_stack", CUBESHIM_OBSERVE=observe)
            self.assertEqual((process.sections, process.count("open"), process.count("stat")),
                             (2, 4, 1))
            next(self.out.iterdir()).unlink()

    def test_a_handler_on_a_small_stack_of_its_own_lives(self):
        (process,) = self.processes_of("alternate_stack")
        self.assertEqual((process.count("open"), process.count("read")), (4, 4))

    def test_a_child_of_vfork_leaves_its_parents_profile_alone(self):
        for observe in "01":
            (process,) = self.processes_of("vforked_child", CUBESHIM_OBSERVE=observe)
            self.assertEqual((process.sections, process.count("open"), process.count("read")),
                             (1, 1, 21))
            next(self.out.iterdir()).unlink()

    def test_while_another_thread_has_the_loaders_lock_all_goes_on_without_native_stacks(self):
        for process in self.processes_of("loader_lock"):
            self.assertEqual((process.count("open"), process.count("read")), (1, 1))
            self.assertEqual(process.dropped[NO_NATIVE], 3)

    def test_a_later_load_is_waited_for_though_an_earlier_one_was_slow(self):
        (process,) = self.processes_of("later_loads")
        self.assertEqual(process.count("open"), 3)
        self.assertEqual(process.dropped[NO_NATIVE], 3, "the calls during the first load")

    def test_child_of_a_fork_with_calls_in_a_handler_has_native_stacks(self):
        parent, child = self.processes_of("reading_fork_handler")
        self.assertEqual((parent.count("open"), parent.dropped[NO_NATIVE]), (1, 3))
        self.assertEqual((child.count("open"), child.dropped[NO_NATIVE]), (1, 0))

    def test_child_that_is_forked_while_another_thread_writes_the_profile_writes_its_own(self):
        host = self.enterContext(self.start_host("fork_during_write"))
        self.addCleanup(host.kill)
        writer = Stopped(int(host.stdout.readline()))
        print(file=host.stdin, flush=True)
        self.assertEqual(writer.run_to_any(GETPPID), GETPPID)
        host.send_signal(signal.SIGUSR1)
        self.assertEqual(host.stdout.readline(), "done\n")
        writer.go_on()
        self.assertEqual(host.communicate(timeout=60), ("", ""))
        parent, child = self.processes()
        self.assertEqual((parent.sections, child.sections, child.count("open")), (1, 1, 1))

    def test_call_does_not_become_a_cancellation_point(self):
        (process,) = self.processes_of("cancelled_thread")
        self.assertEqual(process.count("stat"), 2)

    def test_failed_call_leaves_its_own_errno(self):
        (process,) = self.processes_of("failed_call")
        self.assertEqual(process.count("stat", number=ERRORS), 1)

    def test_jumps_out_of_calls_leave_the_recorder_as_it_was(self):
        parent, child = self.processes_of("jumps")
        self.assertEqual(parent.count("stat", number=ERRORS), 100)
        self.assertEqual((child.count("open"), child.dropped[NO_NATIVE]), (1, 0))

    def test_children_of_raw_clones_write_separate_figures(self):
        processes = self.processes_of("unseen_forks")
        for process, reads in zip(processes, (3, 5, 7), strict=True):
            self.assertEqual((process.sections, process.count("open"), process.count("read")),
                             (1, reads, reads))
            self.assertEqual({site[3] for site in process.sites if site[2] == "open"},
                             {str(self.data / "file")})
        self.assertEqual(sorted(process.start_ns for process in processes),
                         [process.start_ns for process in processes])
        self.assertGreater(processes[0].start_ns, 0)

    def test_written_file_is_not_reported_as_unread(self):
        (process,) = self.processes_of("written_file")
        self.assertEqual((process.count("open"), process.count("open", 8, UNREAD)), (3, 0))

    def test_an_fd_that_is_a_pipe_now_is_not_the_file_any_more(self):
        (process,) = self.processes_of("reused_number")
        self.assertEqual((process.count("open"), process.count("read")), (1, 1))

    def test_a_stat_before_an_open_by_another_spelling(self):
        (process,) = self.processes_of("looked_at_first")
        self.assertEqual((process.count("open", 8, STAT_FIRST), process.count("stat")), (1, 1))
        self.assertLessEqual(
            process.count("open", 8, STAT_FIRST_US) * 1000, process.count("stat", 6, NS))

    def test_paths_below_the_root_directory(self):
        (process,) = self.processes_of("opened_from_root")
        self.assertEqual(process.count("open"), 1)

    def test_a_file_left_open_at_exit_is_counted(self):
        (process,) = self.processes_of("left_open")
        self.assertEqual((process.count("open", 8, CLOSED), process.count("open", 8, UNREAD)),
                         (1, 0))
        # Each call is counted in the bucket of its duration, and in a bin of the process's run
        # time.
        for site in process.sites:
            ns, counts = int(site[6].split(",")[NS]), [int(count) for count in site[7].split(",")]
            self.assertEqual(counts, [int(2**i <= ns < 2**(i + 1)) for i in range(len(counts))])
        self.assertTrue(process.bins)
        for level, number in process.bins:
            width = 1 << (24 + 2 * level)
            self.assertTrue(process.start_ns // width <= number <= process.end_ns // width,
                            process.bins)

    def test_a_path_with_a_backslash(self):
        path = self.data / r"a\nb"
        path.write_bytes(bytes(1000))
        (process,) = self.processes_of("left_open", file=path.name)
        self.assertEqual({site[3] for site in process.sites}, {str(path).replace("\\", "\\\\")})

    def test_a_profile_for_which_there_is_no_room(self):
        done = self.run_host("left_open", before="ulimit -f 1", CUBESHIM_OBSERVE="1")
        self.assertEqual(done.returncode, 0)
        self.assertRegex(
            done.stderr,
            r"^cubeshim: warn: CUBESHIM_PROFILE: cannot write .*/raw\.\d+: "
            r"(File too large|No space left on device)\n$"
        )

    def test_two_processes_of_one_pid_do_not_write_concurrently(self):
        common = self.data / "common"
        common.touch()
        with common.open("a") as other:
            fcntl.flock(other, fcntl.LOCK_SH)
            done = self.run_host("written_file", before=f"ln {common} {self.out}/raw.$$")
            self.assertEqual((done.returncode, common.read_text()), (0, ""))
            self.assertRegex(
                done.stderr,
                r"^cubeshim: warn: CUBESHIM_PROFILE: cannot write .*/raw\.\d+: Resource "
                r"temporarily unavailable\n$"
            )
        for number in 1, 2:
            self.assertEqual(
                self.run_host("written_file", before=f"ln {common} {self.out}/raw.$$").stderr, "")
            self.assertEqual(Process(common.read_text()).sections, number)


if __name__ == "__main__":
    unittest.main()
