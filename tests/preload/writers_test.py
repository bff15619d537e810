"""A file that is open for writing is not cached, whichever process of the node writes to it. The
process that opened the file can have executed another program, or have ended and left the file to a
child. CUBESHIM_LIBRARY names the build's library, PRELOAD_HELPER its helper."""
import ctypes
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

LIBRARY = os.environ["CUBESHIM_LIBRARY"]
HELPER = os.environ["PRELOAD_HELPER"]
END = "-- end --\n"
TEXT = "all of it\n" * 1000

# Programs that open "$FILE" for writing and leave it to another program, which copies bytes from
# "$FIFO".
EXEC = 'exec cat "$FIFO" > "$FILE"'
# The executed program leaves the open file to a child and ends.
EXEC_AND_FORK = """exec bash -c '{ exec cat "$FIFO"; } & exit' > "$FILE" """
VFORK = f"""exec {HELPER} vfork-write "$FILE" "$FILE.absent" "$FIFO" """
# A shell without the library opens the file.
INHERITED = """env -u LD_PRELOAD bash -c 'exec env LD_PRELOAD="$0" cat "$FIFO" > "$FILE"' \\
    "$LD_PRELOAD" """
EXEC_TWICE = """exec bash -c 'exec cat "$FIFO"' > "$FILE" """
FORK = """
import os
fd = os.open(os.environ["FILE"], os.O_WRONLY | os.O_TRUNC)
if os.fork() == 0:
    with open(os.environ["FIFO"], "rb") as fifo:
        os.write(fd, fifo.read())
os._exit(0)
"""
SPAWN = """
import os
fd = os.open(os.environ["FILE"], os.O_WRONLY | os.O_TRUNC)
os.posix_spawn("/bin/cat", ["cat", os.environ["FIFO"]], os.environ,
               file_actions=[(os.POSIX_SPAWN_DUP2, fd, 1)])
os._exit(0)
"""
# The library learns of the file when the call has returned in the parent. Before this, the child
# writes nothing, because it waits for the end of a pipe that the parent holds.
OPENED_BY_SPAWN = """
import os
has_returned, held = os.pipe()
files = [(os.POSIX_SPAWN_OPEN, 1, os.environ["FILE"], os.O_WRONLY | os.O_TRUNC, 0),
         (os.POSIX_SPAWN_DUP2, has_returned, 0)]
os.posix_spawn("/bin/sh", ["sh", "-c", "read end; exec cat \\"$FIFO\\""], os.environ,
               file_actions=files)
os._exit(0)
"""
SENT = """
import os, socket
ours, theirs = socket.socketpair()
if os.fork() == 0:
    fd = socket.recv_fds(theirs, 1, 1)[1][0]
    with open(os.environ["FIFO"], "rb") as fifo:
        os.write(fd, fifo.read())
    os._exit(0)
with open(os.environ["FILE"], "wb") as file:
    socket.send_fds(ours, [b"x"], [file.fileno()])
os._exit(0)
"""
# Sends the file to a program without the library: by libc's call for many messages, and by the
# numbers of both system calls.
SENT_AWAY = """
import ctypes, os, socket, struct
ours, theirs = socket.socketpair()
receive = ("import os,socket,sys; fd = socket.recv_fds(socket.socket(fileno=%d), 1, 1)[1][0]; "
           "os.write(fd, open(sys.argv[1], chr(114) + chr(98)).read())")
if os.fork() == 0:
    theirs.set_inheritable(True)
    without = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    os.execve("/usr/bin/python3", ["python3", "-c", receive % theirs.fileno(), os.environ["FIFO"]],
              without)
libc = ctypes.CDLL(None)
sendmsg, sendmmsg = (46, 307) if os.uname().machine == "x86_64" else (211, 269)
fd = os.open(os.environ["FILE"], os.O_WRONLY | os.O_TRUNC)
byte = ctypes.create_string_buffer(b"x")
part = ctypes.create_string_buffer(struct.pack("PN", ctypes.addressof(byte), 1))
rights = ctypes.create_string_buffer(
    struct.pack("Niii4x", 20, socket.SOL_SOCKET, socket.SCM_RIGHTS, fd))
message = ctypes.create_string_buffer(
    struct.pack("PI4xPNPNi4xI4x", 0, 0, ctypes.addressof(part), 1, ctypes.addressof(rights), 24, 0,
                0))
SEND
os._exit(0)
"""
# The file is registered with a ring, and its fd is closed.
RING = """
import ctypes, mmap, os, struct
libc, long = ctypes.CDLL(None), ctypes.c_long
parameters = ctypes.create_string_buffer(120)
ring = libc.syscall(long(425), long(4), parameters)
assert ring >= 0
_, tail, _, _, _, _, array, _, _, _ = struct.unpack_from("10I", parameters, 40)
rings = mmap.mmap(ring, 8192)
libc.mmap.restype = ctypes.c_void_p
requests = libc.mmap(None, ctypes.c_size_t(4096), mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED,
                     ring, long(0x10000000))
fd = os.open(os.environ["FILE"], os.O_WRONLY | os.O_TRUNC)
assert libc.syscall(long(427), long(ring), long(2), (ctypes.c_int * 1)(fd), long(1)) == 0
os.close(fd)
with open(os.environ["FIFO"], "rb") as fifo:
    text = ctypes.create_string_buffer(fifo.read())
write, fixed_file = 23, 1
request = struct.pack("BBHiQQIIQ24x", write, fixed_file, 0, 0, 0, ctypes.addressof(text),
                      len(text) - 1, 0, 0)
ctypes.memmove(requests, request, len(request))
struct.pack_into("I", rings, array, 0)
struct.pack_into("I", rings, tail, 1)
assert libc.syscall(long(426), long(ring), long(1), long(1), long(1), None, long(0)) == 1
os._exit(0)
"""
# A thread creates its own fd table and closes its fd. Another thread still has the file open.
UNSHARED = """
import ctypes, os, threading
libc = ctypes.CDLL(None)
fd = os.open(os.environ["FILE"], os.O_WRONLY | os.O_TRUNC)
def leave():
    assert libc.UNSHARE == 0
    os.close(fd)
thread = threading.Thread(target=leave)
thread.start()
thread.join()
with open(os.environ["FIFO"], "rb") as fifo:
    os.write(fd, fifo.read())
os._exit(0)
"""
SUBPROCESS = """
import os, subprocess
with open(os.environ["FILE"], "wb") as file:
    subprocess.Popen(["cat", os.environ["FIFO"]], stdout=file)
os._exit(0)
"""
MAPPED = """
import mmap, os
fd = os.open(os.environ["FILE"], os.O_RDWR | os.O_TRUNC)
os.truncate(fd, 10000)
bytes_of_file = mmap.mmap(fd, 10000)
os.close(fd)
if os.fork() == 0:
    with open(os.environ["FIFO"], "rb") as fifo:
        bytes_of_file[:] = fifo.read()
os._exit(0)
"""
# The file is first mapped for reading, and then made writable by mprotect.
PROTECTED = """
import ctypes, mmap, os
fd = os.open(os.environ["FILE"], os.O_RDWR | os.O_TRUNC)
os.truncate(fd, 10000)
libc, size = ctypes.CDLL(None), ctypes.c_size_t(10000)
libc.mmap.restype = ctypes.c_void_p
at = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, ctypes.c_long(0))
os.close(fd)
with open(os.environ["FIFO"], "rb") as fifo:
    text = fifo.read()
assert libc.mprotect(ctypes.c_void_p(at), size, mmap.PROT_READ | mmap.PROT_WRITE) == 0
ctypes.memmove(at, text, len(text))
os._exit(0)
"""
# Only a mapping in a child is left. (Python's own mapping would keep an fd.)
MAPPED_ALONE = """
import ctypes, mmap, os
fd = os.open(os.environ["FILE"], os.O_RDWR | os.O_TRUNC)
os.truncate(fd, 10000)
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
at = libc.mmap(None, ctypes.c_size_t(10000), mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, fd,
               ctypes.c_long(0))
os.close(fd)
if os.fork() == 0:
    with open(os.environ["FIFO"], "rb") as fifo:
        text = fifo.read()
    ctypes.memmove(at, text, len(text))
os._exit(0)
"""
BY_EXIT = """
import ctypes, os
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
stream = ctypes.c_void_p(libc.fopen(os.environ["FILE"].encode(), b"w"))
libc.setvbuf(stream, None, 0, 20000)
with open(os.environ["FIFO"], "rb") as fifo:
    libc.fputs(fifo.read(), stream)
libc.exit(0)
"""


def has_rings():
    parameters = ctypes.create_string_buffer(120)
    ring = ctypes.CDLL(None).syscall(ctypes.c_long(425), ctypes.c_long(1), parameters)
    if ring >= 0:
        os.close(ring)
    return ring >= 0


def can_overlay():
    with tempfile.TemporaryDirectory(dir="/dev/shm") as work:
        for name in ("lower", "upper", "work", "all"):
            Path(work, name).mkdir()
        options = f"lowerdir={work}/lower,upperdir={work}/upper,workdir={work}/work"
        return subprocess.run([
            "unshare", "-m", "--propagation", "private", "mount", "-t", "overlay", "overlay", "-o",
            options, f"{work}/all"
        ], stderr=subprocess.DEVNULL).returncode == 0


class Shell(unittest.TestCase):
    def setUp(self):
        self.work = Path(os.path.realpath(tempfile.mkdtemp(prefix="cubeshim-writers-")))
        self.memory = tempfile.mkdtemp(prefix="cubeshim-writers-", dir="/dev/shm")
        self.addCleanup(shutil.rmtree, self.work)
        self.addCleanup(shutil.rmtree, self.memory)
        self.data = self.work / "data"
        self.data.mkdir()
        self.file, self.other = self.data / "file", self.data / "other"
        self.fifo = self.work / "fifo"
        self.report = self.work / "report"
        self.file.write_text("old\n")
        self.other.write_text("other\n")
        os.mkfifo(self.fifo)
        environment = {
            "PATH": os.environ["PATH"], "LC_ALL": "C", "FILE": str(self.file),
            "OTHER": str(self.other), "FIFO": str(self.fifo), "LD_PRELOAD": LIBRARY,
            "CUBESHIM_PREFIXES": str(self.data), "CUBESHIM_RAM": "64M", "CUBESHIM_PREFETCH": "0",
            "CUBESHIM_RAM_DIR": self.memory, "CUBESHIM_STATS": str(self.report),
            "CUBESHIM_STATS_FORMAT": "json"
        }
        # All later commands belong to the job of this shell.
        self.shell = subprocess.Popen(self.shell_command(), stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, env=environment, text=True)
        self.addCleanup(self.shell.stdout.close)
        self.addCleanup(self.shell.wait)
        self.addCleanup(self.shell.stdin.close)

    def shell_command(self):
        return ["bash"]

    def run_in_shell(self, command):
        """Runs a command in the shell and returns its output."""
        self.shell.stdin.write(f"{command}\necho; echo '{END.strip()}'\n")
        self.shell.stdin.flush()
        lines = []
        while (line := self.shell.stdout.readline()) != END:
            self.assertNotEqual(line, "", f"the shell has ended: {lines}")
            lines.append(line)
        return "".join(lines)[:-1]

    def read(self):
        return self.run_in_shell('cat "$FILE"')

    def wait_until_nobody_writes(self):
        """Waits until no process has the file open for writing. The kernel closes the files of an
        ended process one after another, and a sent file some time later. The mount in the shell's
        namespace shows whether a file is still open."""
        with open(f"/proc/{self.shell.pid}/root{self.file}", "rb") as file:
            while True:
                try:
                    fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
                    break
                except BlockingIOError:
                    os.sched_yield()
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)

    def check(self, program, python=True, expected=TEXT, is_cached_again=True):
        command = f"python3 -c '{program}'" if python else program
        # The shell attaches to the region and stays attached.
        self.run_in_shell('exec 9< "$OTHER"')
        self.assertEqual(self.read(), "old\n")
        # The waiter ends when every process that has inherited fd 8 has ended.
        self.run_in_shell(
            f"exec 7> >(exec cat > /dev/null); waiter=$!; ( {command} ) < /dev/null 8>&7 7>&- & "
            "exec 7>&-"
        )
        # The last program continues when the FIFO is opened.
        with open(self.fifo, "w") as fifo:
            for _ in range(3):
                self.read()
            fifo.write(TEXT)
        self.run_in_shell("wait $waiter")
        self.wait_until_nobody_writes()
        self.assertEqual(self.read(), expected)
        self.assertEqual(self.read(), expected)
        self.shell.stdin.close()
        self.shell.wait()
        report = json.loads(self.report.read_text())
        busy, hits = report["bypassed"]["busy"], report["hits"]["ram"]
        # The file is cached again as soon as no process writes it, and not before.
        self.assertIn((busy, hits), [(3, 1)] if is_cached_again else [(3, 1), (4, 0), (5, 0)],
                      report)


class Writers(Shell):
    def test_exec(self):
        self.check(EXEC, python=False)

    def test_exec_and_fork(self):
        self.check(EXEC_AND_FORK, python=False)

    def test_opened_by_a_shell_without_the_library(self):
        self.check(INHERITED, python=False)

    def test_exec_twice(self):
        self.check(EXEC_TWICE, python=False)

    def test_fork(self):
        self.check(FORK)

    def test_opened_after_vfork(self):
        self.check(VFORK, python=False)

    def test_spawn(self):
        self.check(SPAWN)

    def test_opened_by_spawn(self):
        self.check(OPENED_BY_SPAWN)

    def test_sent(self):
        self.check(SENT)

    def test_sent_away_by_many(self):
        self.check(SENT_AWAY.replace("SEND", "libc.sendmmsg(ours.fileno(), message, 1, 0)"))

    def test_sent_away_by_number(self):
        self.check(SENT_AWAY.replace("SEND", "libc.syscall(sendmsg, ours.fileno(), message, 0)"))

    def test_sent_away_by_number_of_many(self):
        self.check(SENT_AWAY.replace("SEND",
                                     "libc.syscall(sendmmsg, ours.fileno(), message, 1, 0)"))

    @unittest.skipUnless(has_rings(), "io_uring is refused here")
    def test_ring(self):
        # The kernel closes the files of a ring only some time after the end of the process.
        self.check(RING, is_cached_again=False)

    def test_unshared(self):
        self.check(UNSHARED.replace("UNSHARE", "unshare(0x400)"))

    def test_unshared_by_close_range(self):
        self.check(UNSHARED.replace("UNSHARE", "close_range(1000, 1000, 2)"))

    def test_subprocess(self):
        self.check(SUBPROCESS)

    def test_mapped(self):
        self.check(MAPPED)

    def test_mapped_alone(self):
        self.check(MAPPED_ALONE)

    def test_mapped_for_reading_first(self):
        self.check(PROTECTED)

    def test_written_by_exit(self):
        self.check(BY_EXIT)


@unittest.skipUnless(os.geteuid() == 0, "needs root")
class WritersWithoutLeases(Shell):
    """If a process neither owns the file nor has CAP_LEASE, the kernel does not report writers to
    it, so the file is never cached again."""
    def shell_command(self):
        os.chown(self.file, 12345, 12345)
        return ["capsh", "--drop=cap_lease", "--", "-c", "exec bash"]

    def test_exec(self):
        # The program has ended before any process reads.
        self.check(EXEC_AND_FORK.replace("{", "{ while kill -0 $$ 2> /dev/null; do :; done;"),
                   python=False, is_cached_again=False)

    def test_exec_without_the_library(self):
        wait = "{ while kill -0 $$ 2> /dev/null; do :; done;"
        command = EXEC_AND_FORK.replace("exec bash", "exec env -u LD_PRELOAD bash")
        self.check(command.replace("{", wait), python=False, is_cached_again=False)

    def test_sent_away_by_many(self):
        self.check(SENT_AWAY.replace("SEND", "libc.sendmmsg(ours.fileno(), message, 1, 0)"),
                   is_cached_again=False)

    def test_mapped_alone(self):
        self.check(MAPPED_ALONE, is_cached_again=False)


@unittest.skipUnless(can_overlay(), "no overlay can be mounted here")
class WritersOnOverlay(Writers):
    """Mappings of an overlay's file belong to a file of another file system, so the kernel believes
    that the overlay's own file is closed."""
    def shell_command(self):
        for name in ("upper", "work"):
            Path(self.memory, name).mkdir()
        options = f"lowerdir={self.data},upperdir={self.memory}/upper,workdir={self.memory}/work"
        script = ('unset LD_PRELOAD; mount -t overlay overlay -o "$1" "$2" && LD_PRELOAD="$3" '
                  'exec bash')
        return [
            "unshare", "-m", "--propagation", "private", "bash", "-c", script, "bash", options,
            str(self.data), LIBRARY
        ]

    def test_mapped(self):
        self.check(MAPPED, is_cached_again=False)

    def test_mapped_alone(self):
        self.check(MAPPED_ALONE, is_cached_again=False)

    def test_mapped_for_reading_first(self):
        self.check(PROTECTED, is_cached_again=False)


if __name__ == "__main__":
    unittest.main()
