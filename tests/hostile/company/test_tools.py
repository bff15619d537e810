"""Runs under debuggers, tracers and the loader's own switches, and with libraries that are loaded
and unloaded all the time."""
import pathlib
import re
import subprocess
import unittest

from support import LIBRARY, Job, need_tool, program

STEPS = ("read:DIR", "read:DIR", "threads:DIR:4:262144", "fork:DIR", "vfork:DIR", "held",
         "send:DIR")


class Tools(Job):
    def job(self, *steps):
        return [program("company_job"), *self.steps(*(steps or STEPS))]

    def test_valgrind_finds_nothing(self):
        valgrind = [
            need_tool("valgrind"), "-q", "--error-exitcode=9", "--leak-check=full",
            "--child-silent-after-fork=yes"
        ]
        plain = self.run_one(self.job(), shim=False)
        done = self.run_one(valgrind + self.job(), shim=True)
        self.assertEqual((done.status, done.out), (0, plain.out), str(done))
        # valgrind may report nothing except calls that are newer than valgrind.
        said = [
            line for line in done.err.splitlines()
            if not re.search(r"unhandled amd64-linux syscall|^--\d+--", line)
        ]
        self.assertEqual(said, [], str(done))
        self.assertGreater(done.hits, 0, str(done))

    def test_gdb(self):
        gdb = [
            need_tool("gdb"), "-q", "-batch", "-nx", "-ex", f"set environment LD_PRELOAD {LIBRARY}",
            "-ex", "run", "--args"
        ]
        plain = self.run_one(self.job(), shim=False)
        done = self.run_one(gdb + self.job(), shim=True, preload=[])
        self.assertIn("exited normally", done.out, str(done))
        self.assertTrue(set(plain.out.splitlines()) <= set(done.out.splitlines()), str(done))
        self.assertGreater(done.hits, 0, str(done))

    def test_strace_follows_children(self):
        trace = self.dir / "trace"
        strace = [need_tool("strace"), "-f", "-o", trace, "-E", f"LD_PRELOAD={LIBRARY}"]
        plain = self.run_one(self.job(), shim=False)
        done = self.run_one(strace + self.job(), shim=True, preload=[])
        self.assertEqual((done.status, done.out, done.err), (0, plain.out, plain.err), str(done))
        self.assertGreater(done.hits, 0, str(done))
        # No signal kills the job, and every system call is one that the kernel knows.
        text = trace.read_text(errors="replace")
        self.assertNotRegex(text, r"\+\+\+ killed|--- SIG(SEGV|BUS|SYS|XFSZ)")
        self.assertNotRegex(text, r"= -1 ENOSYS")

    def test_perf_record(self):
        perf = [need_tool("perf"), "record", "-q", "-g", "-o", self.dir / "perf.data", "--"]
        if subprocess.run([*map(str, perf), "/bin/true"], capture_output=True).returncode != 0:
            self.skipTest("perf may not record here")
        plain = self.run_one(self.job(), shim=False)
        done = self.run_one([*perf, "/usr/bin/env", f"LD_PRELOAD={LIBRARY}", *self.job()],
                            shim=True, preload=[])
        self.assertEqual((done.status, done.out), (0, plain.out), str(done))
        self.assertGreater(done.hits, 0, str(done))


class Loader(Job):
    def test_bind_now(self):
        self.env["LD_BIND_NOW"] = "1"
        self.check_job(*STEPS)

    def test_debug_output(self):
        self.env.update({"LD_DEBUG": "bindings", "LD_DEBUG_OUTPUT": str(self.dir / "ld")})
        self.check_job(*STEPS)
        bound = "".join(path.read_text(errors="replace") for path in self.dir.glob("ld.*"))
        self.assertRegex(bound,
                         r"company_job \[0\] to \S*libcubeshim\.so \[0\]: normal symbol `open'")

    def test_audit(self):
        source = self.dir / "audit.c"
        source.write_text(
            "unsigned la_version(unsigned v) { return v; }\n"
            "unsigned la_objopen(void *m, long l, void *c) { (void)m; (void)l; (void)c; return 3; "
            "}\n"
        )
        library = self.dir / "audit.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
        self.env["LD_AUDIT"] = str(library)
        self.check_job(*STEPS)

    def test_linked_statically(self):
        # Without a dynamic linker, the library is not loaded, so reads are plain and no line is
        # printed. A dynamic process that runs at the same time reads the right bytes of the same
        # files.
        for name in ("company_static", "company_static_pie", "company_musl"):
            with self.subTest(name):
                self.check([program(name), *self.steps(*STEPS)], hits=False)
                # The exec by the first process of the job ends the report, and the next job removes
                # the region.
                shim = self.check_job("read:DIR", "read:DIR", "hold:DIR", "exec", program(name),
                                      "read:DIR", hits=False)
                self.assertEqual(shim.report, None)
                self.check_job("read:DIR", "read:DIR")
                self.assertEqual(self.regions(), [])

    def test_static_children_inherit_real_files(self):
        script = self.python("""
import subprocess
check_all(); check_all()
for name in sys.argv[2:]:
    with open(D + '/f7', 'rb', buffering=0) as f:
        assert f.read(100) == CONTENT[7][:100]
        assert subprocess.run([name, 'quiet:' + D + '/none'], stdin=f).returncode == 0
        assert subprocess.run(['/bin/cat'], stdin=f, capture_output=True).stdout == CONTENT[7][100:]
""")
        self.check([*script, program("company_static"), program("company_musl")])

    def test_fixed_addresses(self):
        self.check([
            program("company_job"), "personality", "exec",
            program("company_job"), *self.steps(*STEPS)
        ])

    def test_dlopen_storm_in_threads(self):
        script = self.python("""
import ctypes, threading, _ctypes
names = ['libm.so.6', 'libz.so.1', 'libdl.so.2', 'libresolv.so.2', 'libutil.so.1']
def loader():
    for i in range(60):
        handle = ctypes.CDLL(names[i % len(names)])._handle
        _ctypes.dlclose(handle)
def reader():
    for _ in range(10): check_all()
threads = [threading.Thread(target=f) for f in (loader, reader) * 4]
for t in threads: t.start()
for t in threads: t.join()
""")
        self.check(script)

    def test_namespaces_of_the_loader(self):
        # Code in a separate loader namespace (dlmopen) has its own libc. It bypasses the library,
        # and the kernel opens its files.
        script = self.python("""
import ctypes
check_all(); check_all()
libc = ctypes.CDLL(None)
libc.dlmopen.restype = ctypes.c_void_p
libc.dlsym.restype = ctypes.c_void_p
handle = libc.dlmopen(ctypes.c_long(-1), b'libc.so.6', 2)
assert handle
other = lambda name, *types: ctypes.CFUNCTYPE(*types)(libc.dlsym(ctypes.c_void_p(handle), name))
open_ = other(b'open', ctypes.c_int, ctypes.c_char_p, ctypes.c_int)
read = other(b'read', ctypes.c_ssize_t, ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t)
close = other(b'close', ctypes.c_int, ctypes.c_int)
buffer = ctypes.create_string_buffer(5000)
for _ in range(5):
    fd = open_((D + '/f4').encode(), 0)
    assert fd >= 0 and read(fd, buffer, 5000) == 5000 and buffer.raw == CONTENT[4]
    check_all()
    assert close(fd) == 0
    check_all()
# An fd that the library serves, read there: the placeholder returns EBADF, never wrong bytes.
ours = os.open(D + '/f4', os.O_RDONLY)
print(read(ours, buffer, 10) in (10, -1))
""")
        self.check(script)

    def test_loaded_twice_and_by_hand(self):
        # Two names of the same file in LD_PRELOAD are one library. A copy is a second library,
        # which defers to the first.
        copy = self.dir / "copy.so"
        copy.write_bytes(pathlib.Path(LIBRARY).read_bytes())
        self.check_job(*STEPS, preload=[LIBRARY, LIBRARY])
        self.check_job(*STEPS, preload=[LIBRARY, str(copy)], hits=None)

    def test_opened_by_the_program_itself(self):
        # After dlopen, the library comes too late to be in front of libc. Nothing is served, and
        # nothing breaks.
        script = self.python("import ctypes\nctypes.CDLL(sys.argv[2])\ncheck_all(); check_all()\n")
        plain = self.run_one([*script, LIBRARY], shim=False)
        shim = self.run_one([*script, LIBRARY], shim=True, preload=[])
        self.assertEqual((plain.status, shim.status, shim.ours), (0, 0, []), str(shim))


if __name__ == "__main__":
    unittest.main()
