"""Unusual starts, and unusual ends: fds, environment, umask, names, standard streams."""
import json
import os
import subprocess
import unittest

from support import LIBRARY, Job, program

STEPS = ("read:DIR", "read:DIR", "fork:DIR", "vfork:DIR", "held", "send:DIR")


class Start(Job):
    def test_closed_standard_fds(self):
        for fds in ((0,), (1,), (2,), (0, 1, 2), (0, 2)):
            with self.subTest(fds=fds):
                # Without the library, the program's own files can then get fds 0 to 2.
                steps = [f"close:{fd}" for fd in fds]
                inner = [program("company_job"), *self.steps("quiet:DIR/none", *STEPS)]
                native = self.run_one([program("company_static"), *steps, "exec", *inner],
                                      shim=False)
                done = self.run_one([program("company_static"), *steps, "exec", *inner], shim=True)
                self.assertEqual((done.status, done.out, done.err),
                                 (native.status, native.out, native.err), str(done))
                self.assertGreater(done.hits, 0, str(done))

    def test_reports_and_lines_never_land_in_a_data_file(self):
        # Fd 2 is closed at the start, and a data file is opened as fd 2.
        self.settings["CUBESHIM_STATS"] = "stderr"
        self.settings["CUBESHIM_RAM_DIR"] = "/nowhere"
        victim = self.data / "victim"
        victim.write_bytes(b"data\n")
        for steps in (("close:2", "exec", program("company_job"), f"open:{victim}:2", "read:DIR",
                       "read:DIR"), ("exec", program("company_job"), f"open:{victim}:2", "read:DIR",
                                     "read:DIR")):
            with self.subTest(steps=steps):
                done = self.run_one([program("company_static"), *self.steps(*steps)], shim=True)
                self.assertEqual(done.status, 0, str(done))
                self.assertEqual(victim.read_bytes(), b"data\n")

    def test_stderr_is_a_file_under_the_prefix(self):
        log = self.data / "log"
        self.settings.update({"CUBESHIM_STATS": "stderr", "CUBESHIM_STATS_FORMAT": "text"})
        with open(log, "wb") as err:
            done = self.run_one([program("company_job"), *self.steps("read:DIR", "read:DIR")],
                                shim=True, stderr=err)
        self.assertEqual(done.status, 0)
        self.assertEqual([line.split(": ")[1] for line in log.read_text().splitlines()],
                         ["served", "not served", "time saved"])

    def test_the_reader_of_the_report_is_gone(self):
        self.settings["CUBESHIM_STATS"] = "stderr"
        read_end, write_end = os.pipe()
        os.close(read_end)
        done = self.run_one([program("company_job"), *self.steps("read:DIR", "read:DIR")],
                            shim=True, stderr=write_end)
        os.close(write_end)
        self.assertEqual(done.status, 0, "SIGPIPE by a report")
        self.assertEqual(done.out.count("20 files"), 2)

    def test_stderr_takes_nothing(self):
        # The device is full: the report is lost, but the status is not.
        self.settings["CUBESHIM_STATS"] = "stderr"
        with open("/dev/full", "wb") as full:
            self.assertEqual(
                self.run_one([program("company_job"), *self.steps("read:DIR")], shim=True,
                             stderr=full).status, 0)
        self.settings["CUBESHIM_STATS"] = "/dev/full"
        env = {**self.env, **self.settings, "LD_PRELOAD": LIBRARY}
        job = [program("company_job"), *self.steps("read:DIR")]
        done = subprocess.run(job, env=env, capture_output=True, timeout=self.timeout)
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stderr.decode(),
                         r"\A(cubeshim: warn: CUBESHIM_STATS: cannot write /dev/full: .*\n)?\Z")

    def test_report_of_a_program_that_closes_stderr_before_its_end(self):
        # coreutils close stderr like this, and jobs are often started by timeout or nice.
        self.settings["CUBESHIM_STATS"] = "stderr"
        for launcher in (["timeout", "100"], ["nice"], ["env"], ["nohup"], ["setsid", "-w"]):
            with self.subTest(launcher):
                done = self.run_one(
                    [*launcher,
                     program("company_job"), *self.steps("read:DIR", "read:DIR")], shim=True)
                self.assertEqual(done.status, 0)
                reports = [
                    json.loads(line) for line in done.err.splitlines() if line.startswith("{")
                ]
                self.assertEqual(len(reports), 1, done.err)
                report = reports[0]
                self.assertEqual((report["misses"], report["hits"]["ram"]), (20, 20), done.err)

    def test_environments(self):
        # An environment with only the variables that the library needs; none at all; a huge one.
        self.env = {}
        self.check_job(*STEPS)
        huge = {f"VARIABLE_{n}": "x" * 1000 for n in range(1000)}
        self.env = {**huge, "PATH": "/usr/bin:/bin"}
        self.check_job(*STEPS)
        job = [program("company_job"), *self.steps("read:DIR")]
        done = subprocess.run(job, env={}, capture_output=True, timeout=self.timeout)
        self.assertEqual((done.returncode, done.stderr), (0, b""))

    def test_children_with_an_empty_environment(self):
        script = self.python("""
import subprocess
check_all(); check_all()
with open(D + '/f7', 'rb', buffering=0) as f:
    f.read(100)
    done = subprocess.run(['/bin/cat'], stdin=f, env={}, capture_output=True)
    assert done.stdout == CONTENT[7][100:]
os.environ.clear()
check_all()
if os.fork() == 0:
    check_all()
    os._exit(0)
print(os.wait()[1])
""")
        self.check(script)

    def test_umask(self):
        for mask in ("777", "000", "077"):
            with self.subTest(mask):
                self.settings["CUBESHIM_RAM_KEEP"] = "1"
                job = self.check_job(f"umask:{mask}", *STEPS)
                # With any umask, only this user has rights to the region, and the next job can use
                # it.
                self.assertEqual([path.stat().st_mode & 0o777 for path in self.regions()], [0o600])
                again = self.check_job("read:DIR")
                self.assertEqual(again.report["misses"], 0, str(again))
                self.remove_regions()

    def test_report_file_of_a_job_with_umask_777(self):
        done = self.check_job("umask:777", "read:DIR", "read:DIR")
        self.assertIsNotNone(done.report)

    def test_no_name(self):
        # argv[0] is missing. Apart from the usage text, the program starts and ends as without the
        # library.
        self.check([program("company_static"), "argv0", program("company_job")], hits=None)

    def test_working_directory_is_gone(self):
        gone = self.dir / "gone"
        script = (f"mkdir -p {gone}; cd {gone}; rmdir {gone}; exec {program('company_job')} "
                  f"{' '.join(self.steps(*STEPS))}")
        self.check(["/bin/sh", "-c", script])

    def test_many_processes_start_and_end(self):
        script = "for i in 1 2 3 4 5 6 7 8 9 10; do {0} & {0} & {0} & done; wait".format(
            " ".join([program("company_job"), *self.steps("read:DIR", "quiet:DIR")]) +
            " > /dev/null")
        done = self.check(["/bin/sh", "-c", script])
        self.assertEqual(
            done.report["hits"]["ram"] + done.report["misses"] + done.report["bypassed"]["busy"],
            30 * 40, str(done))
        self.assertEqual(self.regions(), [])


if __name__ == "__main__":
    unittest.main()
