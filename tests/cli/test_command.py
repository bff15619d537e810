"""The `cubeshim` command, as a user types it."""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import unittest
from pathlib import Path

from cli_case import COMMAND, CONTENT, Case


class Run(Case):
    def test_serves_the_files_of_the_program(self):
        done = self.run_program("cat", self.file, self.file, options=["--stats-format", "json"])
        self.assertEqual((done.returncode, done.stdout), (0, CONTENT * 2))
        report = json.loads(done.stderr)
        self.assertEqual((report["misses"], report["hits"]["ram"]), (1, 1))

    def test_takes_little_of_a_limit_of_the_program_s_data(self):
        """Sets a memory limit that a table for the largest possible number of fds would exceed."""
        code = ("import resource\nresource.setrlimit(resource.RLIMIT_DATA, (20 << 20, 20 << 20))\n"
                f"for _ in range(3): open({str(self.file)!r}, 'rb').read()\n"
                "print(len(bytearray(4 << 20)))")
        done = self.run_program("python3", "-c", code, options=["--stats-format", "json"])
        self.assertEqual((done.returncode, done.stdout), (0, b"4194304\n"))
        self.assertEqual(json.loads(done.stderr)["bytes_served"], 3 * len(CONTENT))

    def test_the_report_counts_the_bytes_of_each_kind_of_read(self):
        code = (
            f"import os\nfd = os.open({str(self.file)!r}, os.O_RDONLY)\n"
            "os.read(fd, 100), os.readv(fd, [bytearray(20), bytearray(30)]), "
            "os.pread(fd, 7, 0), os.preadv(fd, [bytearray(8)], 0)")
        done = self.run_program("python3", "-c", code,
                                options=["--stats-format", "json", "--prefetch", "0"])
        self.assertEqual(json.loads(done.stderr)["bytes_served"], 165)

    def test_program_gets_its_arguments_unchanged(self):
        for separator in ([], ["--"]):
            done = self.run_program(*separator, "sh", "-c", 'printf "%s|" "$@"', "x", "a b", "--",
                                    "-p", "--name=y")
            self.assertEqual(done.stdout, b"a b|--|-p|--name=y|")

    def test_the_exit_status_is_the_program_s(self):
        self.assertEqual(self.run_program("sh", "-c", "exit 7").returncode, 7)
        self.assertEqual(self.run_program("sh", "-c", "kill -9 $$").returncode, -9)

    @unittest.skipIf(os.geteuid() != 0, "only root has namespaces")
    def test_the_first_process_of_a_container_has_the_status_of_a_shell(self):
        """The signal that ends the program must not end the command."""
        inside = [
            "unshare", "--pid", "--fork", "--kill-child", COMMAND, "run", "-p", self.data, "--name",
            self.name, "--ram", "32M"
        ]
        clean = {k: v for k, v in os.environ.items() if not k.startswith("CUBESHIM_")}
        self.assertEqual(
            subprocess.run([*inside, "sh", "-c", "kill -9 $$"], env=clean, capture_output=True,
                           timeout=300).returncode, 137)

    def serve_until_killed(self, *before, options=()):
        """Starts a job, the leader of a process group, that has read a file twice and waits."""
        code = (f"import time\nfor turn in range(2): open({str(self.file)!r}, 'rb').read()\n"
                "print('ready', flush=True)\ntime.sleep(60)")
        words = [
            "run", "-p", self.data, "--name", self.name, "--ram", "32M", "--stats-format", "json",
            *options, *before, "python3", "-c", code
        ]
        job = self.start(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         start_new_session=True)
        self.assertEqual(job.stdout.readline(), b"ready\n")
        return job

    def test_a_program_that_is_killed_has_a_report(self):
        """The signal is sent to the command or, as from a terminal, to the whole group. The region
        ends with the program."""
        for send, number in ((os.kill, signal.SIGTERM), (os.kill, signal.SIGHUP),
                             (os.killpg, signal.SIGTERM), (os.kill, signal.SIGUSR2)):
            job = self.serve_until_killed()
            send(job.pid, number)
            told = job.communicate(timeout=300)[1]
            self.assertEqual(job.returncode, -number)
            report = json.loads(told)
            self.assertEqual((report["misses"], report["hits"]["ram"]), (1, 1))
            self.assertFalse(self.region.exists())

    def test_a_kept_region_outlives_a_killed_program(self):
        job = self.serve_until_killed(options=["--ram-keep", "1"])
        job.terminate()
        self.assertEqual(json.loads(job.communicate(timeout=300)[1])["misses"], 1)
        self.assertTrue(self.region.exists())

    def test_job_is_warned_if_the_cache_keeps_another_size(self):
        told = "CUBESHIM_RAM has no effect: "
        self.keep_a_region()
        # Each job has two processes that use the cache.
        for size, times in (("32M", 0), ("64M", 1), ("50%", 0)):
            done = self.command("run", "-p", self.data, "--name", self.name, "--ram", size,
                                "--ram-keep", "1", "sh", "-c", f"cat {self.file}; cat {self.file}")
            self.assertEqual((done.stdout, done.stderr.decode().count(told)),
                             (CONTENT * 2, times), done.stderr)

    def test_a_job_without_the_library_at_its_head_has_one_report(self):
        """Only the command can report for the children of such a program."""
        words = [
            "sh", "-c",
            f'LD_PRELOAD= sh -c "LD_PRELOAD=$LD_PRELOAD cat {self.file}; LD_PRELOAD=$LD_PRELOAD '
            f'cat {self.file}"'
        ]
        done = self.run_program(*words, options=["--stats-format", "json"])
        report = json.loads(done.stderr)
        self.assertEqual((done.stdout, report["misses"], report["hits"]["ram"]),
                         (CONTENT * 2, 1, 1))

    def test_the_program_gets_each_signal_once(self):
        """The signal is sent to the command or to the group. If the program handles it, the status
        is the program's own."""
        code = (
            "import os, signal\nsigns = []\ndef note(*_): signs.append(1); os.write(1, b'got\\n')\n"
            "def end(*_): os.write(1, b'%d\\n' % len(signs)); os._exit(7)\n"
            "signal.signal(signal.SIGUSR1, note)\nsignal.signal(signal.SIGUSR2, end)\n"
            "os.write(1, b'ready\\n')\n"
            "while True: signal.pause()")
        for send in (os.kill, os.killpg):
            job = self.start("run", "-p", self.data, "--name", self.name, "--ram", "32M", "python3",
                             "-c", code, stdout=subprocess.PIPE, start_new_session=True)
            self.assertEqual(job.stdout.readline(), b"ready\n")
            send(job.pid, signal.SIGUSR1)
            self.assertEqual(job.stdout.readline(), b"got\n")
            # The command forwards the signals in this order.
            os.kill(job.pid, signal.SIGUSR2)
            self.assertEqual((job.stdout.readline(), job.wait(60)), (b"1\n", 7))

    def start_noting(self, *first):
        """Starts a job that notes SIGUSR1, SIGUSR2 and SIGINT. At SIGTERM, it prints which of these
        signals it has received."""
        code = ("import os, signal, sys\nsigns = []\n"
                "def note(number, _): signs.append(number); print('got', flush=True)\n"
                "def end(*_): print(*signs, flush=True); os._exit(7)\n"
                "for number in (10, 12, 2): signal.signal(number, note)\n"
                "signal.signal(signal.SIGTERM, end)\nprint('ready', flush=True)\n" +
                "".join(line + "\n" for line in first) + "while True: signal.pause()")
        job = self.start("run", "-p", self.data, "--name", self.name, "--ram", "32M", "python3",
                         "-c", code, stdout=subprocess.PIPE, start_new_session=True)
        self.assertEqual(job.stdout.readline(), b"ready\n")
        return job

    def test_the_program_gets_each_of_several_signals_for_the_group_once(self):
        """The command handles signals one by one. Here, it is stopped until all signals are
        pending."""
        for after in ((os.killpg, signal.SIGUSR2), (os.kill, signal.SIGUSR2)):
            job = self.start_noting()
            os.kill(job.pid, signal.SIGSTOP)
            os.waitid(os.P_PID, job.pid, os.WSTOPPED)
            os.killpg(job.pid, signal.SIGINT)
            self.assertEqual(job.stdout.readline(), b"got\n")
            os.killpg(job.pid, signal.SIGUSR1)
            self.assertEqual(job.stdout.readline(), b"got\n")
            after[0](job.pid, after[1])
            # The command forwards the signals in the order of their numbers.
            for number in (signal.SIGTERM, signal.SIGCONT):
                os.kill(job.pid, number)
            self.assertEqual((job.stdout.read(), job.wait(60)), (b"got\n2 10 12\n", 7))

    def test_two_signals_of_one_number_for_the_group_are_two_at_most(self):
        """The second signal can arrive while the command handles the first."""
        code = ("import signal\nnumbers = (signal.SIGUSR1, signal.SIGUSR2)\n"
                "signal.pthread_sigmask(signal.SIG_BLOCK, numbers)\nprint('ready', flush=True)\n"
                "for _ in range(100):\n  n = 0\n"
                "  while signal.sigwait(numbers) != numbers[1]: n += 1\n  print(n, flush=True)\n")
        job = self.start("run", "-p", self.data, "--name", self.name, "--ram", "32M", "python3",
                         "-c", code, stdout=subprocess.PIPE, start_new_session=True)
        self.assertEqual(job.stdout.readline(), b"ready\n")
        for turn in range(100):
            for _ in range(2):
                os.killpg(job.pid, signal.SIGUSR1)
                sum(range(turn * 300))  # The signal arrives at another step of the command each
                                        # time.
            os.kill(job.pid, signal.SIGUSR2)
            self.assertIn(job.stdout.readline(), (b"1\n", b"2\n"))
        self.assertEqual(job.wait(60), 0)

    def test_a_signal_of_the_program_for_its_group_hides_none_for_the_command(self):
        job = self.start_noting("os.killpg(0, signal.SIGUSR1)")
        self.assertEqual(job.stdout.readline(), b"got\n")
        # When the command has forwarded this signal, it has handled all earlier signals.
        os.kill(job.pid, signal.SIGUSR2)
        self.assertEqual(job.stdout.readline(), b"got\n")
        for number in (signal.SIGUSR1, signal.SIGTERM):
            os.kill(job.pid, number)
        self.assertEqual((job.stdout.read(), job.wait(60)), (b"got\n10 12 10\n", 7))

    def test_stops_and_goes_on_with_the_program(self):
        job = self.start("run", "-p", self.data, "--name", self.name, "sh", "-c",
                         "kill -TSTP $$; exit 3", process_group=0)
        self.assertEqual(os.WSTOPSIG(os.waitpid(job.pid, os.WUNTRACED)[1]), signal.SIGTSTP)
        os.killpg(job.pid, signal.SIGCONT)
        self.assertEqual(job.wait(60), 3)

    def test_holds_no_pipe_that_the_program_closes(self):
        reader, writer = os.pipe()
        job = self.start("run", "-p", self.data, "--name", self.name, "sh", "-c",
                         f"exec {writer}>&- >&-; read line", pass_fds=[writer],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        os.close(writer)
        self.assertEqual((os.read(reader, 1), job.stdout.read()), (b"", b""))
        os.close(reader)
        job.stdin.close()
        job.wait(60)

    def test_command_and_program_die_together(self):
        job = self.serve_until_killed()
        job.kill()
        # The program has the other end of its stdout.
        self.assertEqual((job.stdout.read(), job.wait(60)), (b"", -signal.SIGKILL))

    def test_a_program_that_cannot_run_is_reported(self):
        for program, status in (("/no/such/program", 127), (self.file, 126)):
            done = self.run_program(program)
            self.assertEqual(done.returncode, status)
            self.assertIn(f"cubeshim: cannot run {program}: ".encode(), done.stderr)

    def test_a_musl_program_runs_without_the_library(self):
        """In this test, the name of musl's loader is a link to glibc's, which would load the
        library. Runs the program directly and from a script."""
        loader = self.data / "ld-musl-x86_64.so.1"
        loader.symlink_to(
            subprocess.run(["readelf", "-p", ".interp", "/bin/true"], capture_output=True,
                           text=True).stdout.split()[-1])
        program, script = self.data / "program", self.data / "script"
        source = self.data / "program.c"
        source.write_text(
            '#include <stdio.h>\n#include <stdlib.h>\n'
            'int main(void) { return puts(getenv("LD_PRELOAD") ? getenv("LD_PRELOAD") : "none") < '
            '0; }'
        )
        subprocess.run(["gcc", source, "-o", program, f"-Wl,--dynamic-linker={loader}"], check=True)
        script.write_text(f"#!{program} -x\n")
        script.chmod(0o755)
        for named in (program, script):
            done = self.run_program(named)
            self.assertEqual((done.returncode, done.stdout), (0, b"none\n"))
            self.assertEqual(
                done.stderr.decode(),
                f"cubeshim: {program} runs with musl ({loader}), the library only with glibc: "
                "the program's files are not served\n"
            )

    def test_files_of_the_command_never_become_standard_fds(self):
        """If fds 0 to 2 are closed, a file of the command (such as the list of warmup) must not get
        one of these numbers, and a program finds them closed."""
        self.keep_a_region()
        look = ('open=; for fd in 0 1 2; do [[ -e /proc/$$/fd/$fd ]] && open+=$fd; done; echo '
                '"$open" >&9')
        words = f"--name {self.name} --ram 32M --ram-keep 1"
        for closed in ("", "0", "1", "2", "01", "02", "12", "012"):
            fds = " ".join(f"{fd}>&-" for fd in closed)
            shell = f"{COMMAND} warmup {words} --background {self.data} {fds}; echo $? >&9\n"
            shell += f"{COMMAND} run -p {self.data} {words} --stats off bash -c '{look}' {fds}"
            with tempfile.TemporaryFile("w+") as told:
                subprocess.run(["bash", "-c", f"exec 9>&{told.fileno()}\n{shell}"],
                               pass_fds=[told.fileno()], stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=300)
                told.seek(0)
                still_open = "".join(fd for fd in "012" if fd not in closed)
                self.assertEqual(told.read(), f"0\n{still_open}\n", closed)

    def test_prints_the_path_of_the_library(self):
        library = self.command("library").stdout.decode().strip()
        env = {
            "CUBESHIM_PREFIXES": str(self.data), "CUBESHIM_NAME": self.name, "CUBESHIM_RAM": "32M",
            "LD_PRELOAD": library
        }
        done = subprocess.run(["cat", self.file, self.file], env=os.environ | env,
                              capture_output=True, timeout=300)
        self.assertEqual(done.stdout, CONTENT * 2)
        self.assertIn(b": 1 from memory, 1 from the mount\n", done.stderr)

    def test_command_without_its_library_fails_with_a_message(self):
        alone = self.data / "cubeshim"
        shutil.copy(COMMAND, alone)
        done = subprocess.run([alone, "library"], capture_output=True, timeout=300)
        self.assertEqual((done.returncode, done.stdout), (1, b""))
        self.assertIn(b"cubeshim: libcubeshim.so did not come with this command", done.stderr)

    @unittest.skipIf(os.geteuid() != 0, "needs root, for another user's files")
    def test_library_of_another_user_beside_the_command_is_not_used(self):
        """The directory is like /tmp, to which all users may write."""
        there = self.data / "cubeshim"
        shutil.copy(COMMAND, there)
        library = self.data / "libcubeshim.so"
        library.write_bytes(b"")
        for of_command, of_library, is_found in ((0, 0, True), (0, 65534, False),
                                                 (65534, 65534, True), (65534, 12345,
                                                                        False), (65534, 0, True)):
            os.chown(there, of_command, -1)
            os.chown(library, of_library, -1)
            done = subprocess.run([there, "library"], capture_output=True, timeout=300)
            self.assertEqual(done.stdout.decode(), f"{library}\n" if is_found else "",
                             (of_command, of_library))

    def test_wrong_use_is_reported_in_one_line(self):
        for words, text in (
            (["run", "-p", self.data], b"no program to run"), (["run",
                                                                "true"], b"no directory to serve"),
            (["run", "-p", "/", "true"], b'--prefix "/" is not usable: it takes absolute paths'),
            (["run", "-p", self.data, "--ram", "12Q",
              "true"], b'--ram "12Q" is not usable: it takes a size'),
            (["run", "-p", self.data, "--library", "/no/such.so",
              "true"], b"cannot read the library /no/such.so"), (["run", "--frob", "x", "true"],
                                                                 b"--frob is not an option"),
            (["frob"], b"frob is not a command; the commands are run, profile, plan, library, "),
            (["docter"], b"docter is not a command; did you mean doctor?; see cubeshim --help"),
            (["tpo"], b"tpo is not a command; did you mean top?; see cubeshim --help"),
            (["--verison"], b"--verison is not an option of cubeshim; did you mean --version?; "),
            (["pool", "strat"],
             b'ACTION "strat" is not usable: it takes start, status or stop; did you mean '
             b"start?; "),
            (["completion", "zhs"], b"; did you mean zsh?; see cubeshim completion --help"),
            (["clear", "--color", "alwyas"], b"; did you mean always?; see cubeshim clear --help"),
            (["docs", "prefech"], b"prefech is not a document; did you mean prefetch?; "),
            (["bench", f"{self.data}x"], b"; did you mean " + bytes(self.data) + b"?"),
            (["doctor", "--prefx", "/x"],
             b"--prefx is not an option of cubeshim doctor; did you mean --prefix?; see "),
            (["run", "--prefx=/x", "true"],
             b"--prefx=/x is not an option of cubeshim run; did you mean --prefix?; see "),
            (["run", "-p", f"{self.data}x", "true"],
             b'x": No such file or directory; did you mean ' + bytes(self.data) + b"? (one that "),
            (["frob", "-x", "doctor"], b"frob is not a command; "), ([
                "--name", "x", "doctor"
            ], b"--name is not an option of cubeshim; the options of a command come after its "),
            ([], b"a command is missing; the commands are run, profile, plan, library, "), ([
                "top", "extra", "more"
            ], b"extra is one word too many for cubeshim top; see cubeshim top --help"), ([
                "doctor", "--frob", "x"
            ], b"--frob is not an option of cubeshim doctor; see cubeshim doctor --help"),
            (["run", "--frob", "--prefix", "/x", "--", "true"],
             b"--frob is not an option of cubeshim run; see cubeshim run --help"),
            (["top", "--interval"], b"--interval needs a value: --interval SECONDS; "), ([
                "top", "--interval", "soon"
            ], b'--interval "soon" is not usable: it takes a whole number from 1 to 86400; '), ([
                "top", "--count", "0"
            ], b'--count "0" is not usable: it takes a whole number from 1 to '),
        ):
            done = self.command(*words)
            self.assertEqual((done.returncode, done.stdout, done.stderr.count(b"\n")), (2, b"", 1),
                             (words, done.stderr))
            self.assertIn(text, done.stderr)
            # The command fails: no default is used.
            self.assertNotIn(b"; using", done.stderr)

    def test_output_that_cannot_be_written_ends_a_command(self):
        """Covers a command that runs until it is interrupted, and a command whose text is longer
        than the buffer."""
        for words in (["top", "--interval", "1", "--name",
                       self.name], ["top", "--json", "--interval", "1", "--name",
                                    self.name], ["man"], ["completion", "bash"], ["library"]):
            with self.subTest(words=words), open("/dev/full", "wb") as full:
                done = subprocess.run([COMMAND, *words], stdout=full, stderr=subprocess.PIPE,
                                      timeout=300)
                self.assertEqual((done.returncode, done.stderr),
                                 (1, b"cubeshim: cannot write to standard output\n"))

    def test_a_relative_prefix_is_made_absolute(self):
        (self.data.parent / "link").symlink_to(self.data.parent)
        (self.data / "inner").mkdir()
        (self.data.parent / "far").symlink_to(self.data / "inner")
        here, link = self.data.parent, self.data.parent / "link"
        # A shell that entered the directory through a link knows both names of the directory. The
        # kernel resolves ".." after a link.
        for directory, pwd, prefix, wanted in ((here, here, "data", f"{here}/data"),
                                               (here, "/tmp", "./data/", f"{here}/data"),
                                               (self.data, self.data, "..", f"{here}"),
                                               (here, link, "data", f"{link}/data:{here}/data"),
                                               (here, here, f"{here}/data/../data", f"{here}/data"),
                                               (here, here, "data:/mnt",
                                                f"{here}/data:/mnt"), (here, here, "far/../f",
                                                                       "far/../f"),
                                              ):
            done = self.command("run", "--name", self.name, "-p", prefix, "printenv",
                                "CUBESHIM_PREFIXES", cwd=directory, env={"PWD": str(pwd)})
            if wanted.startswith("/"):
                self.assertEqual(done.stdout.decode().strip(), wanted, done.stderr)
            else:
                self.assertEqual((done.returncode, done.stderr.count(b"\n")), (2, 1))
                self.assertIn(f'--prefix "{wanted}" is not usable'.encode(), done.stderr)

    def test_missing_prefix_ends_the_command(self):
        """A prefix from the environment can be created later. So a missing one is reported, and is
        an error only in strict mode."""
        missing = self.data / "dta"
        for options, env, status, text in (([
                "-p", missing
        ], {}, 2, f'--prefix "{missing}": No such file or directory'), ([
                "-p", self.file
        ], {}, 2, f'--prefix "{self.file}": Not a directory'), ([], {
                "CUBESHIM_PREFIXES": str(missing)
        }, 0, f'CUBESHIM_PREFIXES holds "{missing}": No such file or directory'), ([], {
                "CUBESHIM_PREFIXES": str(missing), "CUBESHIM_STRICT": "1"
        }, 2, f'"{missing}": No such file or directory'), (["-p", self.data], {
                "CUBESHIM_PREFIX": "/x"
        }, 0, "CUBESHIM_PREFIX is not a setting of this version; did you mean CUBESHIM_PREFIXES?"),
                                           (["-p", self.data
                                            ], {"CUBESHIM_PREFIX": "/x", "CUBESHIM_STRICT": "1"}, 2,
                                            "CUBESHIM_PREFIX is not a setting"),
                                          ):
            done = self.command("run", "--name", self.name, *options, "true", env=env)
            self.assertEqual((done.returncode, done.stdout, done.stderr.count(b"\n")),
                             (status, b"", 1), (options, env, done.stderr))
            self.assertIn(text, done.stderr.decode())

    def test_a_library_with_nothing_to_serve_is_reported_once(self):
        library = self.command("library").stdout.decode().strip()
        words = ["sh", "-c", "cat /dev/null; cat /dev/null; exit 3"]
        clean = {k: v for k, v in os.environ.items() if not k.startswith("CUBESHIM_")
                } | {"LD_PRELOAD": library}
        for env, status, text in (
            ({}, 3, b"cubeshim: warn: nothing is served: CUBESHIM_PREFIXES is not set"),
            ({"CUBESHIM_PREFIX": "/x"}, 3, b"did you mean CUBESHIM_PREFIXES?"),
            ({"CUBESHIM_PREFIX": "/x",
              "CUBESHIM_MODE": "real"}, 3, b"did you mean CUBESHIM_PREFIXES?"),
            ({"CUBESHIM_PREFIX": "/x",
              "CUBESHIM_STRICT": "1"}, 2, b"did you mean CUBESHIM_PREFIXES?"),
        ):
            done = subprocess.run(words, env=clean | env, capture_output=True, timeout=300)
            self.assertEqual((done.returncode, done.stdout, done.stderr.count(b"\n")),
                             (status, b"", 1), (env, done.stderr))
            self.assertIn(text, done.stderr)
        self.assertEqual(
            subprocess.run(words, env=clean | {"CUBESHIM_LOG": "error"}, capture_output=True,
                           timeout=300).stderr, b"")

    def test_a_relative_prefix_serves(self):
        done = self.command("run", "-p", "data", "--name", self.name, "--ram", "32M",
                            "--stats-format", "json", "cat", "data/f", self.file,
                            cwd=self.data.parent)
        report = json.loads(done.stderr)
        self.assertEqual((done.stdout, report["misses"], report["hits"]["ram"]),
                         (CONTENT * 2, 1, 1))

    def test_option_overrides_the_environment(self):
        done = self.command("run", "-p", self.data, "--name", self.name, "printenv",
                            "CUBESHIM_NAME", env={"CUBESHIM_NAME": "other"})
        self.assertEqual(done.stdout.decode().strip(), self.name)

    def test_every_setting_is_an_option(self):
        text = self.command("run", "--help-all").stdout.decode()
        definition = (Path(__file__).parents[2] / "cache/base/settings/config.def").read_text()
        names = re.findall(r'"CUBESHIM_(\w+)",', definition)
        self.assertGreater(len(names), 10)
        for name in names:
            option = name.lower().replace("_", "-").replace("prefixes", "prefix")
            self.assertIn(f"--{option} ", text)


class Stats(Case):
    def test_shows_what_a_job_did(self):
        self.keep_a_region()
        shown = json.loads(self.command("stats", "--name", self.name, "--json").stdout)
        self.assertEqual([job["report"]["misses"] for job in shown["jobs"]], [1])
        self.assertEqual((shown["processes"], shown["region"]), (0, str(self.region)))
        text = self.command("stats", "--name", self.name).stdout
        self.assertIn(b"used by 1 record, 0 processes", text)
        self.assertIn(b"cubeshim: served: 1 file open, 50.0 KiB read or mapped: 1 from the mount\n",
                      text)
        classic = self.command("stats", "--name", self.name,
                               env={"CUBESHIM_STATS_FORMAT": "classic"}).stdout
        self.assertIn(b"sum request_count:1 hit_count:0 miss_count:1", classic)

    def test_looking_changes_nothing(self):
        self.keep_a_region()
        before = self.region.read_bytes()
        self.command("stats", "--name", self.name)
        self.assertEqual(self.region.read_bytes(), before)

    def test_a_missing_cache_is_reported(self):
        done = self.command("stats", "--name", self.name)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"there is no cache named {self.name}".encode(), done.stderr)


class Clear(Case):
    def test_removes_a_kept_region(self):
        self.keep_a_region()
        done = self.command("clear", "--name", self.name)
        self.assertEqual((done.returncode, self.region.exists()), (0, False), done.stderr)
        self.assertIn(b"nothing to clear", self.command("clear", "--name", self.name).stdout)

    def test_one_in_use_is_left_unless_forced(self):
        user = (f"exec 3<{self.file}; {COMMAND} clear --name {self.name}; echo $?; {COMMAND} "
                f"clear --force --name {self.name}; cat <&3 | wc -c")
        done = self.run_program("bash", "-c", user)
        lines = done.stdout.decode().splitlines()
        self.assertEqual((lines[0], lines[-1]), ("1", str(len(CONTENT))), done.stderr)
        self.assertIn(b"is used by ", done.stderr)
        self.assertFalse(self.region.exists())

    def test_clear_of_another_file_needs_force(self):
        self.region.write_bytes(b"something else")
        self.region.chmod(0o600)
        done = self.command("clear", "--name", self.name)
        self.assertEqual((done.returncode, self.region.exists()), (1, True))
        self.assertIn(b"is not a sound region", done.stderr)
        self.assertEqual(self.command("clear", "--force", "--name", self.name).returncode, 0)
        self.assertFalse(self.region.exists())

    def test_removes_the_socket_of_a_killed_job(self):
        path = Path(f"{self.region}.sock")
        self.addCleanup(lambda: path.unlink(missing_ok=True))
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(str(path))
            listener.listen()
            self.assertIn(b"nothing to clear", self.command("clear", "--name", self.name).stdout)
            self.assertTrue(path.exists(), "somebody listens")
            listener.listen(0)
            with self.assertRaises(BlockingIOError):
                while True:
                    client = self.enterContext(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
                    client.setblocking(False)
                    client.connect(str(path))
            self.command("clear", "--name", self.name)
            self.assertTrue(path.exists(), "somebody listens, and has much to do")
        self.assertIn(f"removed {path}".encode(), self.command("clear", "--name", self.name).stdout)
        self.assertFalse(path.exists())

    def test_removes_learned_data_sets(self):
        disk, ram = (self.data.parent / name for name in ("disk", "ram"))
        learned = [place / f"cubeshim-learned-{os.geteuid()}-{self.name}" for place in (ram, disk)]
        for path in learned:
            path.mkdir(parents=True)
            for kind in ("index", "paths"):
                (path / f"0123.{kind}").write_bytes(b"x")
        words = ("clear", "--name", self.name, "--ram-dir", ram, "--disk-dir", disk)
        done = self.command(*words)
        self.assertEqual(
            done.stdout.decode(),
            "".join(f"removed {path}, what was learned about data sets\n" for path in learned),
            done.stderr)
        self.assertFalse(any(path.exists() for path in learned))
        self.assertIn(b"nothing to clear", self.command(*words).stdout)
        learned[0].mkdir()
        (learned[0] / "mine").write_bytes(b"x")
        done = self.command(*words)
        self.assertEqual((done.returncode, done.stderr.decode()),
                         (1, f"cubeshim: cannot remove {learned[0]}: Directory not empty\n"))
        self.assertTrue((learned[0] / "mine").exists())


class Disk(Case):
    """The files of a job on a disk. The job has its own name."""
    def setUp(self):
        super().setUp()
        self.disk = self.data.parent / "disk"
        self.disk.mkdir()
        self.cache = self.disk / f"cubeshim-{os.geteuid()}-{self.name}"
        self.options = ["--disk-dir", self.disk, "--name", self.name]

    def run_job(self, then=":"):
        """Runs a job that reads the file, and ends while the file is being written to the disk."""
        wait = (f'exec 3<"{self.file}"; until compgen -G "{self.cache}/segment-*" >/dev/null; do '
                f':; done; {then}')
        done = self.run_program("bash", "-c", wait,
                                options=["--disk-dir", self.disk, "--disk", "64M"])
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def clear(self, *words):
        return self.command("clear", *self.options, *words)

    def doctor(self):
        done = self.command("doctor", "--json", "-p", self.data, "--ram", "32M", *self.options)
        found = [f for f in json.loads(done.stdout) if str(self.disk) in f["what"]]
        return done.returncode, [(f["health"], f["what"]) for f in found]

    def test_clear_removes_it(self):
        self.run_job()
        done = self.clear()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"removed {self.cache} (1 segment, ".encode(), done.stdout)
        self.assertEqual(list(self.disk.iterdir()), [])
        self.assertIn(f"in /dev/shm or {self.disk}".encode(), self.clear().stdout)

    def test_clear_leaves_other_files(self):
        self.run_job()
        other = self.cache / "notes"
        other.write_text("mine")
        done = self.clear()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(b"is still there: it has other files", done.stdout)
        self.assertEqual(list(self.cache.iterdir()), [other])

    def test_clear_refuses_while_a_job_uses_it(self):
        # The command has its own directory for regions, so it does not use the job's region.
        other = self.data.parent / "ram"
        other.mkdir()
        words = " ".join(
            f"'{word}'" for word in (COMMAND, "clear", *self.options, "--ram-dir", other))
        said = self.run_job(
            f"{words} 2>&1; echo $?; {words} --force; echo $?").decode().splitlines()
        self.assertIn(f"{self.cache} is used by a job", said[0])
        self.assertEqual((said[1], said[-1]), ("1", "0"), said)
        self.assertFalse(self.cache.exists())

    def test_clear_needs_force_for_another_version(self):
        self.run_job()
        (self.cache / "version").write_text("cubeshim disk 99\n")
        done = self.clear()
        self.assertEqual((done.returncode, done.stderr.count(b"\n")), (1, 1))
        self.assertIn(b"'cubeshim disk 99'", done.stderr)
        self.assertIn(b"--force", done.stderr)
        self.assertEqual(self.clear("--force").returncode, 0)
        self.assertFalse(self.cache.exists())

    def test_doctor_reports_the_disk_cache(self):
        status, found = self.doctor()
        self.assertEqual((status, [health for health, _ in found]), (0, ["ok"]), found)
        # A tenth of the disk stays free, and is not offered.
        added, free = re.search(r"where (\S+ \S+) may be added \((\S+ \S+) free, ",
                                found[0][1]).groups()
        self.assertNotEqual(added, free)
        self.run_job()
        status, found = self.doctor()
        self.assertEqual((status, [health for health, _ in found]), (0, ["ok", "ok"]), found)
        self.assertIn(f"{self.cache} is there: 1 record, ", found[1][1])
        self.assertIn("1 of 1 segments whole", found[1][1])

    def test_doctor_finds_damage(self):
        self.run_job()
        segment, = self.cache.glob("segment-*")
        content = segment.read_bytes()
        segment.write_bytes(content[:-1])
        before = sorted(path.name for path in self.cache.iterdir())
        status, found = self.doctor()
        self.assertEqual((status, [health for health, _ in found]), (0, ["ok", "ok", "warn"]),
                         found)
        self.assertIn("0 of 1 segments whole", found[1][1])
        self.assertIn(segment.name, found[2][1])
        self.assertEqual((segment.read_bytes(), sorted(path.name for path in self.cache.iterdir())),
                         (content[:-1], before))

    def test_doctor_reports_an_unusable_disk_cache(self):
        self.cache.mkdir(mode=0o700)
        (self.cache / "version").write_text("cubeshim disk 99\n")
        _, found = self.doctor()
        self.assertEqual([health for health, _ in found], ["ok", "warn"], found)
        self.assertIn("'cubeshim disk 99'", found[1][1])
        self.cache.chmod(0o777)
        self.assertIn("is refused", self.doctor()[1][1][1])
        self.options[1] = self.disk / "no/ne"
        status, found = self.doctor()
        self.assertEqual(
            (status, found),
            (0, [("warn", f"CUBESHIM_DISK_DIR={self.disk}/no/ne: No such file or directory")]))

    def test_a_directory_that_is_missing_is_made(self):
        self.disk.rmdir()
        self.assertEqual(self.doctor(),
                         (0, [("ok",
                               f"CUBESHIM_DISK_DIR={self.disk}: the first job will create it")]))
        self.run_job()
        self.assertEqual(self.disk.stat().st_mode & 0o777, 0o700)


if __name__ == "__main__":
    unittest.main()
