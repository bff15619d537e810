"""A process that could not open a file itself must not get its bytes from the cache."""
import os
import subprocess
import unittest

from support import CONTENT, GROUP, NOBODY, PYTHON, USER, Case, as_root, as_user, write

# A process that may read the file reads it. Then a child in the same job, which has had fewer
# rights since its exec, tries to read it.
IN_ONE_JOB = """
import os, subprocess
print(len(open(F, 'rb').read()))
child = subprocess.run(BEFORE + ['/usr/bin/python3', '-c', TRY.replace('F', repr(F))],
                       capture_output=True)
print(child.stdout.decode().strip() or child.stderr.decode().splitlines()[-1])
"""
TRY = """
try: print(open(F, 'rb').read(20))
except PermissionError: print('denied')
"""

# Without capabilities, root is only the owner of its files.
POWERLESS = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]


@as_root
class AfterExec(Case):
    def child_sees(self, before, first=()):
        script = f"BEFORE = {list(before)!r}\nTRY = {TRY!r}\n" + IN_ONE_JOB
        done = self.job.python(script, first)
        lines = done.stdout.splitlines()
        self.assertEqual((done.returncode, len(lines), lines[:1]), (0, 2, [str(len(CONTENT))]),
                         done.stderr)
        return lines[1]

    def test_another_user_is_denied(self):
        os.chmod(self.job.file, 0o600)
        self.assertEqual(self.child_sees(as_user(NOBODY)), "denied")

    def test_root_without_capabilities_is_denied(self):
        write(self.job.file, mode=0o600, owner=USER)
        self.assertEqual(self.child_sees(POWERLESS), "denied")

    def test_a_user_without_the_group_is_denied(self):
        os.chown(self.job.file, 0, GROUP)
        os.chmod(self.job.file, 0o040)
        # A user cannot drop groups without a capability; a process that starts as root can.
        keep = ["--inh-caps=+setgid", "--ambient-caps=+setgid"]
        self.assertEqual(
            self.child_sees(["setpriv", "--clear-groups"],
                            as_user(USER, GROUP) + keep), "denied")

    def test_a_later_job_of_the_user_without_the_group_is_denied(self):
        os.chown(self.job.file, 0, GROUP)
        os.chmod(self.job.file, 0o040)
        keep = {"CUBESHIM_RAM_KEEP": "1", "CUBESHIM_STATS": "off"}
        self.assert_well(self.job.read(as_user(USER, GROUP), **keep))
        done = self.job.read(as_user(USER), **keep)
        self.assertIn(b"PermissionError", done.stderr)

    def test_another_mount_namespace_sees_its_own_file(self):
        other = self.job.path("other")
        os.mkdir(other)
        write(f"{other}/f", b"another file" * 10)
        bind = f"mount --bind {other} {self.job.data} && exec \"$@\""
        seen = self.child_sees(["unshare", "-m", "--propagation=private", "sh", "-c", bind, "sh"])
        self.assertEqual(seen, str((b"another file" * 10)[:20]))

    def test_the_same_rights_share(self):
        """Despite the checks of the tests above, a child with the rights of its parent finds the
        files that the parent has read."""
        self.assertEqual(self.child_sees([]), str(CONTENT[:20]))
        self.assertEqual((self.job.totals()["misses"], self.job.totals()["hits"]["ram"]), (1, 1))


# Enters a domain that allows reads only below the paths before "--", and executes the program after
# "--".
IN_A_DOMAIN = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
end = sys.argv.index('--')
rules = libc.syscall(444, struct.pack('Q', 1 << 2), 8, 0)
assert rules >= 0
for place in sys.argv[1:end]:
    assert libc.syscall(445, rules, 1, struct.pack('=QI', 1 << 2, os.open(place, os.O_PATH)),
                        0) == 0
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.syscall(446, rules, 0) == 0
os.execvp(sys.argv[end + 1], sys.argv[end + 1:])
"""
WITH_MANY_GROUPS = """
import os, sys
os.setgroups([int(sys.argv[1]), *range(100000, 101100)])
os.setresgid(77, 77, 77); os.setresuid(54321, 54321, 54321)
os.execvp(sys.argv[2], sys.argv[2:])
"""
KEEP = {"CUBESHIM_RAM_KEEP": "1", "CUBESHIM_METADATA_TTL": "job"}


def has_landlock():
    asked = subprocess.run(
        [PYTHON, "-c", "import ctypes; print(ctypes.CDLL(None).syscall(444, None, 0, 1))"],
        capture_output=True, text=True, check=True)
    return int(asked.stdout) >= 1


@as_root
class AtTheStart(Case):
    """Rights that a process has from its start. Another job of the same user has read the file."""
    def test_a_process_in_a_landlock_domain_is_denied(self):
        if not has_landlock():
            self.skipTest("this kernel has no Landlock")
        self.assert_well(self.job.read(**KEEP))
        system = [
            place for place in ("/usr", "/lib", "/lib64", "/bin", "/etc", "/proc", "/dev")
            if os.path.exists(place)
        ]
        domain = [
            PYTHON, "-c", IN_A_DOMAIN, *system, self.job.ram_dir, self.job.open_dir,
            self.job.library
        ]
        for denied, allowed in (((), (self.job.data,)), ((self.job.data,), ())):
            done = self.job.python(TRY, [*domain, *allowed, "--"], **KEEP)
            self.assertEqual(done.stdout.strip(), "denied" if denied else str(CONTENT[:20]),
                             done.stderr)

    def test_processes_that_gain_no_privileges_share(self):
        """As in most containers, there is no sandbox, so no open at the origin is needed."""
        self.assert_well(self.job.read(**KEEP))
        self.assert_well(self.job.read(["setpriv", "--no-new-privs"], **KEEP))
        totals = self.job.totals()
        self.assertEqual((totals["hits"]["ram"], totals["origin"]["opens"]), (1, 0), totals)

    def test_a_group_among_very_many_counts(self):
        os.chown(self.job.file, 0, GROUP)
        os.chmod(self.job.file, 0o040)
        for group, sees in ((GROUP, str(CONTENT[:20])), (GROUP + 1, "denied")):
            done = self.job.python(TRY, [PYTHON, "-c", WITH_MANY_GROUPS, str(group)], **KEEP)
            self.assertEqual(done.stdout.strip(), sees, done.stderr)


@as_root
class InTheProcess(Case):
    """Rights that are given up while the program runs. The next open is left to the kernel."""
    def denied_after(self, drop):
        write(self.job.file, mode=0o600, owner=USER)
        done = self.job.python("import ctypes, os, struct\n"
                               "libc = ctypes.CDLL(None, use_errno=True)\n"
                               "print(len(open(F, 'rb').read()), len(open(F, 'rb').read()))\n"
                               f"{drop}\n" + TRY)
        self.assertEqual(done.stdout.split(),
                         [str(len(CONTENT)), str(len(CONTENT)), "denied"], done.stderr)

    def test_by_another_user(self):
        self.denied_after(f"os.seteuid({NOBODY})")

    def test_by_a_raw_call_for_another_user(self):
        self.denied_after(f"assert libc.syscall(117, -1, {NOBODY}, -1) == 0")

    def test_by_capset(self):
        data = "head = struct.pack('Ii', 0x20080522, 0); none = bytes(24)"
        self.denied_after(f"{data}; assert libc.capset(head, none) == 0")

    def test_by_a_raw_capset(self):
        data = "head = struct.pack('Ii', 0x20080522, 0); none = bytes(24)"
        self.denied_after(f"{data}; assert libc.syscall(126, head, none) == 0")

    def test_by_groups(self):
        script = ("import ctypes, os\nlibc = ctypes.CDLL(None)\n"
                  "print(len(open(F, 'rb').read()), len(open(F, 'rb').read()))\n{}\n" + TRY)
        os.chown(self.job.file, 0, GROUP)
        os.chmod(self.job.file, 0o040)
        may_set = ["--inh-caps=+setgid", "--ambient-caps=+setgid"]
        for drop in ("os.setgroups([])", "libc.syscall(116, 0, None)"):
            with self.subTest(drop):
                done = self.job.python(script.format(drop), as_user(USER, GROUP) + may_set)
                self.assertEqual(done.stdout.split()[2:], ["denied"], done.stderr)
        # The group is the process's own.
        own = ["setpriv", f"--reuid={USER}", f"--regid={GROUP}", "--clear-groups", *may_set]
        for drop in ("os.setegid(1)", "os.setresgid(1, 1, 1)",
                     "assert libc.syscall(119, 1, 1, 1) == 0", "assert libc.syscall(106, 1) == 0",
                     "assert libc.syscall(114, 1, 1) == 0"):
            with self.subTest(drop):
                done = self.job.python(script.format(drop), own)
                self.assertEqual(done.stdout.split()[2:], ["denied"], done.stderr)

    def test_by_landlock(self):
        if not has_landlock():
            self.skipTest("this kernel has no Landlock")
        self.denied_after(
            "read_file = struct.pack('Q', 1 << 2)\n"
            "rules = libc.syscall(444, read_file, 8, 0); assert rules >= 0\n"
            "assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.syscall(446, rules, 0) == 0")


if __name__ == "__main__":
    unittest.main()
