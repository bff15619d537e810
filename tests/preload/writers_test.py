"""A file that is open for writing is not cached, whichever process of the node writes to it: who has opened it may have become another
program, or have ended and left it to a child. CUBESHIM_LIBRARY names the build's library."""
import json
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

LIBRARY = os.environ["CUBESHIM_LIBRARY"]
END = "-- end --\n"
TEXT = "all of it\n" * 1000

# Programs that open "$FILE" for writing and leave the writing to one that takes the bytes from "$FIFO".
EXEC = 'exec cat "$FIFO" > "$FILE"'
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
os.posix_spawn("/bin/cat", ["cat", os.environ["FIFO"]], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, fd, 1)])
os._exit(0)
"""
OPENED_BY_SPAWN = """
import os
file = (os.POSIX_SPAWN_OPEN, 1, os.environ["FILE"], os.O_WRONLY | os.O_TRUNC, 0)
os.posix_spawn("/bin/cat", ["cat", os.environ["FIFO"]], os.environ, file_actions=[file])
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
# To a program without the library. By libc's call for many messages, and by the numbers of both calls.
SENT_AWAY = """
import ctypes, os, socket, struct
ours, theirs = socket.socketpair()
receive = "import os,socket,sys; fd = socket.recv_fds(socket.socket(fileno=%d), 1, 1)[1][0]; os.write(fd, open(sys.argv[1], chr(114) + chr(98)).read())"
if os.fork() == 0:
    theirs.set_inheritable(True)
    without = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    os.execve("/usr/bin/python3", ["python3", "-c", receive % theirs.fileno(), os.environ["FIFO"]], without)
libc = ctypes.CDLL(None)
sendmsg, sendmmsg = (46, 307) if os.uname().machine == "x86_64" else (211, 269)
fd = os.open(os.environ["FILE"], os.O_WRONLY | os.O_TRUNC)
byte = ctypes.create_string_buffer(b"x")
part = ctypes.create_string_buffer(struct.pack("PN", ctypes.addressof(byte), 1))
rights = ctypes.create_string_buffer(struct.pack("Niii4x", 20, socket.SOL_SOCKET, socket.SCM_RIGHTS, fd))
message = ctypes.create_string_buffer(struct.pack("PI4xPNPNi4xI4x", 0, 0, ctypes.addressof(part), 1, ctypes.addressof(rights), 24, 0, 0))
SEND
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


class Writers(unittest.TestCase):
    def setUp(self):
        self.work = Path(os.path.realpath(tempfile.mkdtemp(prefix="cubeshim-writers-")))
        self.memory = tempfile.mkdtemp(prefix="cubeshim-writers-", dir="/dev/shm")
        self.addCleanup(shutil.rmtree, self.work)
        self.addCleanup(shutil.rmtree, self.memory)
        self.data = self.work / "data"
        self.data.mkdir()
        self.file, self.other, self.fifo = self.data / "file", self.data / "other", self.work / "fifo"
        self.report = self.work / "report"
        self.file.write_text("old\n")
        self.other.write_text("other\n")
        os.mkfifo(self.fifo)
        environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", "FILE": str(self.file), "OTHER": str(self.other), "FIFO": str(self.fifo),
                       "LD_PRELOAD": LIBRARY, "CUBESHIM_PREFIXES": str(self.data), "CUBESHIM_RAM": "64M", "CUBESHIM_PREFETCH": "0",
                       "CUBESHIM_RAM_DIR": self.memory, "CUBESHIM_STATS": str(self.report), "CUBESHIM_STATS_FORMAT": "json"}
        # All that is done belongs to the job of this shell.
        self.shell = subprocess.Popen(["bash"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True)
        self.addCleanup(self.shell.stdout.close)
        self.addCleanup(self.shell.wait)
        self.addCleanup(self.shell.stdin.close)

    def run_in_shell(self, command):
        """Its output."""
        self.shell.stdin.write(f"{command}\necho; echo '{END.strip()}'\n")
        self.shell.stdin.flush()
        lines = []
        while (line := self.shell.stdout.readline()) != END:
            self.assertNotEqual(line, "", f"the shell has ended: {lines}")
            lines.append(line)
        return "".join(lines)[:-1]

    def read(self):
        return self.run_in_shell('cat "$FILE"')

    def check(self, program, python=True, expected=TEXT):
        command = f"python3 -c '{program}'" if python else program
        # The shell attaches to the region and stays attached.
        self.run_in_shell('exec 9< "$OTHER"')
        self.assertEqual(self.read(), "old\n")
        # The waiter ends when every process that has inherited number 8 has ended.
        self.run_in_shell(f"exec 7> >(exec cat > /dev/null); waiter=$!; ( {command} ) < /dev/null 8>&7 7>&- & exec 7>&-")
        # The last program is at work when somebody reads from the FIFO.
        with open(self.fifo, "w") as fifo:
            for _ in range(3):
                self.read()
            fifo.write(TEXT)
        self.run_in_shell("wait $waiter")
        self.assertEqual(self.read(), expected)
        self.assertEqual(self.read(), expected)
        self.shell.stdin.close()
        self.shell.wait()
        report = json.loads(self.report.read_text())
        # The file is cached again as soon as nobody writes it, and not before.
        self.assertEqual((report["bypassed"]["busy"], report["hits"]["ram"]), (3, 1), report)

    def test_exec(self):
        self.check(EXEC, python=False)

    def test_exec_twice(self):
        self.check(EXEC_TWICE, python=False)

    def test_fork(self):
        self.check(FORK)

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
        self.check(SENT_AWAY.replace("SEND", "libc.syscall(sendmmsg, ours.fileno(), message, 1, 0)"))

    def test_subprocess(self):
        self.check(SUBPROCESS)

    def test_mapped(self):
        self.check(MAPPED)

    def test_written_by_exit(self):
        self.check(BY_EXIT)


if __name__ == "__main__":
    unittest.main()
