"""`cubeshim doctor`: the tests produce each cause that would keep files from being served."""
import json
import os
import resource
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from cli_case import COMMAND, Case, refuse

IO_URING_SETUP, FALLOCATE, LINKAT, OPENAT2, MEMFD_CREATE, FLOCK = 425, 285, 265, 437, 319, 73
PIDFD_OPEN, PIDFD_GETFD, CLOSE_RANGE = 434, 438, 436


class Doctor(Case):
    def doctor(self, *words, **options):
        done = self.command("doctor", "--json", "--name", self.name, *words, **options)
        return done.returncode, {
            f["what"]: (f["health"], f["advice"]) for f in json.loads(done.stdout)
        }

    def finding(self, findings, text):
        found = [f for what, f in findings.items() if text in what]
        self.assertEqual(len(found), 1, findings)
        return found[0]

    def test_all_is_well(self):
        status, findings = self.doctor("-p", self.data, "--ram", "64M")
        self.assertEqual((status, self.finding(findings, f"prefix {self.data} (")[0]), (0, "ok"))
        self.assertEqual({health for health, _ in findings.values()}, {"ok"}, findings)

    def test_obstacles_to_serving_files_fail_with_advice(self):
        for words, text in (([], "CUBESHIM_PREFIXES is not set"), (["-p", "/no/such"],
                                                                   "prefix /no/such: No such file"),
                            (["-p", self.file],
                             "is not a directory"), (["-p", self.data, "--ram-dir",
                                                      "/no/such"], "/no/such: No such file"),
                            (["-p", self.data, "--mode",
                              "off"], "CUBESHIM_MODE=off"), (["-p", self.data, "--ram",
                                                              "12Q"], '--ram "12Q" is not usable'),
                            (["-p", "/"], '--prefix "/" is not usable'),
                           ):
            status, findings = self.doctor(*words)
            health, advice = self.finding(findings, text)
            self.assertEqual((status, health), (1, "fail"))
            self.assertTrue(advice, words)
            self.assertEqual(len([f for f in findings.values() if f[0] != "ok"]), 1,
                             "one mistake, one line")

    def test_files_that_are_too_large_to_be_served(self):
        (self.data / "large").write_bytes(bytes(100000))
        status, findings = self.doctor("-p", self.data, "--max-file", "60000", "--block", "0")
        health, advice = self.finding(findings, "are larger than CUBESHIM_MAX_FILE")
        self.assertEqual((status, health), (0, "warn"), findings)
        self.assertIn(
            "run such a job without CUBESHIM_BLOCK=0 to have them in blocks, or raise "
            "CUBESHIM_MAX_FILE",
            advice)
        for path in self.data.iterdir():
            path.write_bytes(bytes(5000))
        status, findings = self.doctor("-p", self.data, "--max-file", "1000", "--block", "0")
        self.assertEqual((status, self.finding(findings, "are larger than CUBESHIM_MAX_FILE")[0]),
                         (1, "fail"), findings)

    def large_files(self, *words, ram="64M", **options):
        large = self.data / "large"
        large.write_bytes(bytes(100000))
        os.utime(large, (1e9, 1e9))
        return self.doctor("-p", self.data, "--ram", ram, "--max-file", "60000", "--block", "64K",
                           *words, **options)

    def test_reports_whether_large_files_are_served_and_read_ahead(self):
        status, findings = self.large_files()
        self.assertEqual((status, {health for health, _ in findings.values()}), (0, {"ok"}),
                         findings)
        self.finding(
            findings,
            "files larger than CUBESHIM_MAX_FILE (58.6 KiB) are served in blocks of 64.0 KiB")
        self.finding(
            findings,
            f"prefix {self.data}: 1 of 2 files that were checked are larger than "
            "CUBESHIM_MAX_FILE (58.6 KiB) and are "
            "served in blocks of 64.0 KiB")
        self.finding(findings, "large files are read ahead of programs")
        for call in (PIDFD_GETFD, PIDFD_OPEN):
            status, findings = self.large_files(preexec_fn=lambda call=call: refuse(call))
            self.assertEqual(
                (status,
                 self.finding(
                     findings,
                     "read ahead of programs, through files that the library opens itself")[0]),
                (0, "ok"), findings)
        status, findings = self.large_files(preexec_fn=lambda: refuse(CLOSE_RANGE))
        health, advice = self.finding(
            findings, "large files are not read ahead: close_range(CLOSE_RANGE_UNSHARE): ")
        self.assertEqual((status, health), (0, "warn"), findings)
        self.assertIn("allow it in the seccomp profile", advice)
        _, findings = self.large_files("--prefetch", "0")
        self.assertEqual([what for what in findings if "ahead of programs" in what], [])
        status, findings = self.large_files(ram="32M")
        self.assertEqual(
            (status, self.finding(findings, "32.0 MiB of memory is little for blocks")[0]),
            (0, "warn"), findings)
        status, findings = self.large_files("--mode", "real")
        self.assertEqual(
            (status, self.finding(findings, "are left to the kernel: CUBESHIM_MODE is set")[0]),
            (0, "ok"), findings)
        self.assertEqual(self.finding(findings, "and will not be served")[0], "warn")

    def test_large_files_that_show_another_version_at_each_stat(self):
        (self.data / "large").write_bytes(bytes(2 << 20))
        writer = subprocess.Popen([
            "/usr/bin/python3", "-c",
            "import os, sys\nprint(flush=True)\nwhile True: os.utime(sys.argv[1])",
            self.data / "large"
        ], stdout=subprocess.PIPE)
        self.addCleanup(lambda: [writer.kill(), writer.communicate()])
        writer.stdout.readline()
        told = []
        # Tries several times, because the writer can be idle between two checks.
        for _ in range(100):
            status, findings = self.doctor("-p", self.data, "--ram", "64M", "--max-file", "60000",
                                           "--block", "64K")
            told = [
                f for what, f in findings.items()
                if "has another inode, size or time at each check" in what
            ]
            if told:
                break
        self.assertEqual((status, [health for health, _ in told]), (0, ["warn"]), findings)

    def test_causes_of_slowness_are_warnings(self):
        link = self.data.parent / "link"
        link.symlink_to(self.data)
        empty = self.data.parent / "empty"
        empty.mkdir()
        for words, text in (([
                "-p", link
        ], f"is reached through a symbolic link; files that are opened as {self.data}/... are not "
           "served"
                            ), (["-p", self.data, "--ram-dir", "/var"], "is not a tmpfs"),
                            (["-p", self.data, "--ram",
                              "900000G"], "free"), (["-p", empty], "holds no readable files"),
                           ):
            status, findings = self.doctor(*words)
            self.assertEqual((status, self.finding(findings, text)[0]), (0, "warn"),
                             (words, findings))

    def test_reports_the_engine_that_will_fetch_ahead(self):
        for words, refuses, health, text in (([], False, "ok",
                                              "io_uring or threads, whichever is faster"),
                                             ([], True, "ok",
                                              "threads, because io_uring is not available"),
                                             (["--io-engine", "threads"], False, "ok",
                                              "threads, as CUBESHIM_IO_ENGINE says"),
                                             (["--io-engine", "uring"], False, "ok",
                                              "io_uring, as CUBESHIM_IO_ENGINE says"), ([
                                                  "--io-engine", "uring"
                                              ], True, "warn", "CUBESHIM_IO_ENGINE=uring: "),
                                             (["--prefetch",
                                               "0"], False, "warn", "CUBESHIM_PREFETCH=0"),
                                             (["--prefetch-list", "/no/such"], False, "warn",
                                              "CUBESHIM_PREFETCH_LIST: /no/such"),
                                            ):
            status, findings = self.doctor(
                "-p", self.data, *words,
                preexec_fn=(lambda: refuse(IO_URING_SETUP)) if refuses else None)
            self.assertEqual((status, self.finding(findings, text)[0]), (0, health),
                             (words, refuses, findings))

    def test_reports_whether_data_loaders_announce(self):
        _, findings = self.doctor("-p", self.data)
        self.assertEqual(
            self.finding(findings, "data loaders of Python announce what they will read")[0], "ok")
        # A place with a copy of only the command and the library.
        place = Path(self.enterContext(tempfile.TemporaryDirectory()))
        for name in ("cubeshim", "libcubeshim.so"):
            shutil.copy(Path(COMMAND).with_name(name), place / name)
        for words, health in (([], "warn"), (["--announce", "0"], None)):
            done = subprocess.run([place / "cubeshim", "doctor", "--json", "-p", self.data, *words],
                                  capture_output=True, text=True, timeout=300)
            found = [
                f for f in json.loads(done.stdout)
                if "data loaders of Python announce nothing" in f["what"]
            ]
            self.assertEqual([f["health"] for f in found], [health] if health else [], done.stdout)
            self.assertTrue(
                all("copy it beside the library as its directory site" in f["advice"]
                    for f in found))

    def test_limits_that_are_too_low_are_reported(self):
        for limit, text in ((resource.RLIMIT_NOFILE, "open files of a process"),
                            (resource.RLIMIT_NPROC, "threads and processes")):
            status, findings = self.doctor("-p", self.data,
                                           preexec_fn=lambda: resource.setrlimit(limit, (200, 200)))
            health, advice = self.finding(findings, f"{text} ")
            self.assertEqual((status, health), (0, "warn"))
            self.assertIn("raise it to 320", advice)

    def test_a_file_in_the_place_of_the_region_is_found(self):
        self.region.write_bytes(b"x" * 5000)
        status, findings = self.doctor("-p", self.data)
        self.assertEqual((status, self.finding(findings, str(self.region))),
                         (1, ("fail", "cubeshim clear --force removes it")))

    def test_prefix_given_by_both_names_gives_no_warning(self):
        link = self.data.parent / "link"
        link.symlink_to(self.data)
        _, findings = self.doctor("-p", link, "-p", self.data)
        self.assertEqual([what for what in findings if "symbolic link" in what], [])

    def test_the_small_shared_memory_of_a_container(self):
        small = self.data.parent / "shm"
        small.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "none", small], check=True)
        self.addCleanup(lambda: subprocess.run(["umount", small], check=True))
        status, findings = self.doctor("-p", self.data, "--ram", "1G", "--ram-dir", small)
        health, advice = self.finding(
            findings,
            f"{small} has 64.0 MiB and 64.0 MiB of it free: the cache gets 32.0 MiB, and the rest "
            "is for others; CUBESHIM_RAM is 1.0 GiB")
        self.assertEqual((status, health), (0, "warn"))
        self.assertIn("--shm-size=16g", advice)
        self.assertIn("CUBESHIM_RAM_DIR", advice)
        subprocess.run(["mount", "-o", "remount,size=39m", small], check=True)
        status, findings = self.doctor("-p", self.data, "--ram-dir", small)
        self.assertEqual(
            (status,
             self.finding(
                 findings,
                 "no room for a cache, which takes 8.0 MiB at least and leaves 32.0 MiB to others")
             [0]), (1, "fail"))

    def test_limits_that_leave_no_cache(self):
        for limit, value, text in (
            (resource.RLIMIT_FSIZE, 30 << 20,
             "files may have 30.0 MiB, and the cache is one file of 32.0 MiB"),
            (resource.RLIMIT_AS, 63 << 20,
             "address space is limited to 63.0 MiB, and the cache takes 64.0 MiB")):
            status, findings = self.doctor(
                "-p", self.data, "--ram", "32M", "--prefetch", "0",
                preexec_fn=lambda: resource.setrlimit(limit, (value, value)))
            health, advice = self.finding(findings, text)
            self.assertEqual((status, health), (1, "fail"))
            self.assertIn("raise it (ulimit -", advice)
        status, findings = self.doctor(
            "-p", self.data, "--ram", "32M",
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30)))
        self.assertEqual((status, self.finding(findings, "address space is limited to 4.0 GiB")[0]),
                         (0, "warn"))

    def test_the_memory_of_a_control_group(self):
        group = make_group(f"cubeshim-{os.getpid()}")
        if group is None:
            self.skipTest("no control group can be made here")
        self.addCleanup(group.rmdir)
        limit = group / ("memory.max" if
                         (group / "memory.max").exists() else "memory.limit_in_bytes")
        limit.write_text(str(256 << 20))
        for ram, health in (("32M", "ok"), ("250M", "warn")):
            _, findings = self.doctor("-p", self.data, "--ram", ram, preexec_fn=lambda:
                                      (group / "cgroup.procs").write_text("0"))
            self.assertEqual(
                self.finding(findings, "the control group allows 256.0 MiB of memory")[0], health)

    def test_hdf5_on_a_mount(self):
        (self.data / "a.h5").write_bytes(bytes(100))
        for env, refused, health, text in ((None, (), "warn", "HDF5 locks each file that it opens"),
                                           (None, (FLOCK,), "fail",
                                            "because the mount has no locks"),
                                           ("BEST_EFFORT", (FLOCK,), None,
                                            "HDF5"), ("FALSE", (FLOCK,), None, "HDF5")):
            _, findings = self.doctor("-p", self.data,
                                      env={"HDF5_USE_FILE_LOCKING": env} if env else None,
                                      preexec_fn=lambda: refuse(*refused) if refused else None)
            if health is None:
                self.assertEqual([what for what in findings if text in what], [], (env, refused))
            else:
                found, advice = self.finding(findings, text)
                self.assertEqual(found, health)
                self.assertIn("HDF5_USE_FILE_LOCKING=FALSE", advice)

    def test_calls_that_a_sandbox_refuses(self):
        for number, name, health in ((FALLOCATE, "fallocate", "fail"), (LINKAT, "linkat", "fail"),
                                     (OPENAT2, "openat2", "warn"), (MEMFD_CREATE, "memfd_create",
                                                                    "warn")):
            status, findings = self.doctor("-p", self.data, "--ram", "32M",
                                           preexec_fn=lambda: refuse(number))
            found, advice = self.finding(findings, f"{name}: Operation not permitted")
            self.assertEqual((status, found), (1 if health == "fail" else 0, health))
            self.assertIn("allow it in the seccomp profile", advice)
        _, findings = self.doctor("-p", self.data, "--ram", "32M", preexec_fn=lambda: refuse(9999))
        self.assertEqual(
            self.finding(findings,
                         "a seccomp filter is on, and allows the calls that were tried")[0], "ok")

    def test_libraries_that_are_preloaded_already(self):
        allocator = self.data.parent / "libjemalloc.so.2"
        chroot = self.data.parent / "libfakechroot.so"
        for path in (allocator, chroot):
            compile_c(path, "int nothing;", "-shared", "-fPIC")
        status, findings = self.doctor("-p", self.data, "--ram", "32M",
                                       env={"LD_PRELOAD": f"{allocator}:{chroot}"})
        self.assertEqual(
            (status,
             self.finding(
                 findings,
                 f"{allocator}: an allocator; it may come before the library or after it")[0]),
            (0, "ok"))
        health, advice = self.finding(findings, str(chroot))
        self.assertEqual(health, "warn")
        self.assertIn("put it before libcubeshim.so", advice)


def make_group(name):
    """Makes a control group below this process's own group, of v1 or v2, that can limit memory."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, group = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        place = Path("/sys/fs/cgroup" + ("/memory" if controllers else "") + group) / name
        try:
            place.mkdir()
        except OSError:
            continue
        if any((place / limit).exists() for limit in ("memory.max", "memory.limit_in_bytes")):
            return place
        place.rmdir()
    return None


def compile_c(path, text, *words):
    subprocess.run(["gcc", "-x", "c", "-", "-x", "none", "-o", path, *words], input=text.encode(),
                   check=True)
    return path


class Programs(Case):
    """`cubeshim doctor -- PROGRAM`."""
    def setUp(self):
        super().setUp()
        self.place = self.data.parent

    def look_at(self, *program, env=None):
        done = self.command("doctor", "--json", "-p", self.data, "--ram", "32M", "--name",
                            self.name, "--", *program, env=env)
        told = [
            f for f in json.loads(done.stdout)
            if str(program[0]) in f["what"] or "loads" in f["what"]
        ]
        self.assertEqual(len(told), 1, done.stdout)
        self.assertEqual(done.returncode, 1 if told[0]["health"] == "fail" else 0)
        return told[0]["health"], told[0]["what"]

    def compiled(self, name, *words, text="int main(void) { return 0; }"):
        return compile_c(self.place / name, text, *words)

    def test_a_usual_program_and_its_arguments(self):
        self.assertEqual(self.look_at("cat", "-p", "--json")[0], "ok")
        self.assertEqual(self.look_at(self.compiled("usual"))[0], "ok")

    def test_a_static_program(self):
        for words in (["-static"], ["-static-pie"]):
            health, text = self.look_at(self.compiled("static", *words))
            self.assertEqual((health, "is a static program" in text), ("fail", True), text)

    def test_a_go_program(self):
        section = ('__attribute__((section(".go.buildinfo"))) int mark = 1; int main(void) { '
                   'return 0; }')
        for words, wanted in (([], "is a Go program"), (["-static"], "is a static Go program")):
            health, text = self.look_at(self.compiled("go", *words, text=section))
            self.assertEqual((health, wanted in text), ("fail", True), text)

    def test_another_c_library(self):
        health, text = self.look_at(
            self.compiled("musl", "-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"))
        self.assertEqual((health, "runs with musl" in text), ("fail", True), text)

    def test_another_processor(self):
        path = self.compiled("other")
        content = bytearray(path.read_bytes())
        content[18:20] = (243).to_bytes(2, "little")
        path.write_bytes(content)
        self.assertIn("is a program of another processor", self.look_at(path)[1])

    def test_a_set_user_id_program(self):
        path = self.compiled("privileged")
        path.chmod(0o4755)
        health, text = self.look_at(path)
        self.assertEqual((health, "is set-user-ID" in text), ("fail", True), text)

    def test_a_script_is_its_interpreter(self):
        self.compiled("inner", "-static")
        script = self.place / "script"
        for line, wanted in (("#!/bin/sh -e", "loads /"), (f"#! {self.place}/inner",
                                                           "inner is a static program"),
                             ("#!/usr/bin/env -S inner --flag",
                              "inner is a static program"), ("#!/no/such", "no such program")):
            script.write_text(f"{line}\n")
            script.chmod(0o755)
            env = {"PATH": f"{self.place}:{os.environ['PATH']}"}
            done = self.command("doctor", "-p", self.data, "--ram", "32M", "--", "script", env=env)
            self.assertIn(wanted, done.stdout.decode())

    def test_files_other_than_programs_are_reported(self):
        path = self.place / "text"
        path.write_text("no program")
        path.chmod(0o755)
        self.assertIn("is not a program that can be read", self.look_at(path)[1])
        self.assertIn("no such program", self.look_at("/no/such")[1])
        self.assertIn("no such program", self.look_at("no-such-program")[1])

    def test_damaged_program_causes_no_crash(self):
        content = self.compiled("whole").read_bytes()
        for size in (3, 4, 20, 64, 100, 600, 5000, len(content) - 100):
            path = self.place / "cut"
            path.write_bytes(content[:size])
            path.chmod(0o755)
            self.look_at(path)
        for at in range(24, 64):
            wrong = bytearray(content)
            wrong[at] = 0xff
            path.write_bytes(wrong)
            self.look_at(path)

    def test_a_library_for_a_newer_libc(self):
        """A library that needs a symbol of glibc 2.99 is next to a copy of the command."""
        (self.place / "map").write_text("GLIBC_2.99 { global: of_the_future; };")
        # The C library's name, for the loader's version table.
        compile_c(self.place / "future.so", "int of_the_future(void) { return 0; }", "-shared",
                  "-fPIC", "-Wl,-soname,libc.so.6", f"-Wl,--version-script={self.place}/map")
        compile_c(self.place / "libcubeshim.so",
                  "int of_the_future(void); int user(void) { return of_the_future(); }", "-shared",
                  "-fPIC", "-nostdlib", self.place / "future.so")
        alone = self.place / "cubeshim"
        shutil.copy(COMMAND, alone)
        done = subprocess.run([alone, "doctor", "-p", self.data], capture_output=True, text=True,
                              timeout=300)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(
            done.stdout,
            r"fail  Linux .*, glibc .*: too old, because .*/libcubeshim.so needs glibc 2.99\n")
        (self.place / "libcubeshim.so").unlink()
        done = subprocess.run([alone, "doctor", "-p", self.data], capture_output=True, text=True,
                              timeout=300)
        self.assertIn("there is no libcubeshim.so for this machine", done.stdout)


if __name__ == "__main__":
    unittest.main()
