"""Calls that never reach the library: rings of io_uring that the kernel polls, tables with
addresses in libc, and wrappers that look up libc's own functions. Also a library that is loaded
after ours and answers stat."""
import ctypes
import errno
import mmap
import os
import struct
import unittest

from support import Job, program

# The kernel's own thread makes read(fd) for each entry of the ring. No call submits an entry.
RING = """
import ctypes, mmap, struct
libc = ctypes.CDLL(None, use_errno=True)
SETUP, SQPOLL = 425, 2
def ring():
    params = bytearray(120)
    struct.pack_into('<IIIII', params, 0, 8, 0, SQPOLL, 0, 60000)
    buffer = (ctypes.c_char * 120).from_buffer(params)
    fd = libc.syscall(SETUP, 8, buffer)
    if fd < 0: sys.exit('no ring')
    sq_entries, cq_entries = struct.unpack_from('<II', params, 0)
    sq, cq = struct.unpack_from('<8I', params, 40), struct.unpack_from('<8I', params, 80)
    queues = mmap.mmap(fd, max(sq[6] + sq_entries * 4, cq[5] + cq_entries * 16), offset=0)
    return fd, queues, mmap.mmap(fd, sq_entries * 64, offset=0x10000000), sq, cq
def word(queues, at, value=None):
    if value is not None: struct.pack_into('<I', queues, at, value)
    return struct.unpack_from('<I', queues, at)[0]
def read_by(ring, fd, at=0):
    number, queues, entries, sq, cq = ring
    to = ctypes.create_string_buffer(100)
    tail = word(queues, sq[1])
    struct.pack_into('<BBHiQQI', entries, tail % 8 * 64, 22, 0, 0, fd, at % 2**64,
                     ctypes.addressof(to), 100)
    word(queues, sq[6] + tail % 8 * 4, tail % 8)
    word(queues, sq[1], tail + 1)
    head = word(queues, cq[0])
    while word(queues, cq[1]) == head:
        # On a busy machine the kernel's thread sometimes sleeps.
        if word(queues, sq[4]) & 1: libc.syscall(426, number, 0, 0, 2, None, 0)
        os.sched_yield()
    mask = word(queues, cq[2])
    result = struct.unpack_from('<i', queues, cq[5] + (head & mask) * 16 + 8)[0]
    word(queues, cq[0], head + 1)
    return result, to.raw[:max(result, 0)]
check_all()
before = os.open(f'{D}/f4', os.O_RDONLY)
r = ring()
after = os.open(f'{D}/f5', os.O_RDONLY)
for fd, n in ((before, 4), (after, 5)): print(read_by(r, fd) == (100, CONTENT[n][:100]))
pid = os.fork()
if pid == 0:
    fd = os.open(f'{D}/f6', os.O_RDONLY)
    os._exit(os.read(fd, 9) != CONTENT[6][:9])
print(os.waitpid(pid, 0)[1])
# The ring reads a file at its own offset while the file is fetched.
big = bytes(n % 251 for n in range(2 << 20))
with open(f'{D}/big', 'wb') as f: f.write(big)
os.utime(f'{D}/big', (1e9, 1e9))
fd = os.open(f'{D}/big', os.O_RDONLY)
print(os.pread(fd, 4, 9) == big[9:13])
for n in range(3):
    print(read_by(r, fd, -1) == (100, big[n * 100:][:100]), os.lseek(fd, 0, os.SEEK_CUR))
print(os.read(fd, 4) == big[300:304])
os.unlink(f'{D}/big')
check_all()
"""
LIBURING = """
import ctypes
check_all()
ring = ctypes.CDLL(sys.argv[2])
before = os.open(f'{D}/f4', os.O_RDONLY)
if ring.ring_read(-1) == -1000: sys.exit('no ring')
after = os.open(f'{D}/f5', os.O_RDONLY)
print(ring.ring_read(before), ring.ring_read(after))
"""
# ctypes would add RTLD_NOW to the flags.
LOAD = """
import ctypes
libc = ctypes.CDLL(None)
libc.dlopen.restype = ctypes.c_void_p
def load(path, flag=os.RTLD_LAZY):
    handle = libc.dlopen(path.encode(), flag | os.RTLD_DEEPBIND)
    return ctypes.CDLL(path, handle=handle)
"""
DEEP = LOAD + """
check_all()
first = os.open(f'{D}/f4', os.O_RDONLY)
deep = load(sys.argv[2])
second = os.open(f'{D}/f5', os.O_RDONLY)
print(deep.deep_read(first), deep.deep_read(second), os.read(second, 4) == CONTENT[5][1:5])
"""
# This process, and a process that starts after the change and uses the cache, must see each change.
CHANGES = LOAD + """
import subprocess
check_all()
deep = load(sys.argv[2])
READ = 'import sys\\ntry: print(open(sys.argv[1]).read())\\nexcept OSError as e: print(e.errno)'
def put(path):
    with open(path, 'w') as f: f.write('old text')
    os.utime(path, (1e9, 1e9))
    for n in range(2):
        with open(path) as f: f.read()
    return path.encode()
def show(change, *arguments):
    path = f'{D}/{change}'
    done = getattr(deep, 'deep_' + change)(put(path), *arguments)
    there = subprocess.run([sys.executable, '-c', READ, path], stdout=subprocess.PIPE, text=True)
    try: here = open(path).read()
    except OSError as e: here = e.errno
    print(change, done, here, there.stdout.strip())
show('write', b'new', 3)
show('print', b'new')
show('truncate', 3)
show('rename', f'{D}/renamed'.encode())
show('unlink')
print(open(f'{D}/renamed').read())
os.unlink(f'{D}/renamed')
"""
OPENS = LOAD + """
size = load(sys.argv[2]).deep_size  # the only call of dlsym
print([size(f'{D}/f{n % 5}'.encode()) for n in range(10)])
"""
PROTECTION = LOAD + """
table = load(sys.argv[2]).deep_table
table.restype = ctypes.c_void_p
for row in open('/proc/self/maps'):
    begin, end = (int(n, 16) for n in row.split()[0].split('-'))
    if begin <= table() < end: print(row.split()[1])
"""
DLERROR = """
import ctypes
libc = ctypes.CDLL(None)
load, error = libc.dlopen, libc.dlerror
load.restype, error.restype = ctypes.c_void_p, ctypes.c_char_p
load(b'libnothere.so', os.RTLD_NOW | os.RTLD_DEEPBIND)
open(f'{D}/f4').close()
print(error())
"""
HARMLESS = """
import ctypes
check_all()
ctypes.CDLL('libm.so.6', os.RTLD_NOW | os.RTLD_DEEPBIND)
fd = os.open(f'{D}/f4', os.O_RDONLY)
for n in range(1000): os.pread(fd, 1, n)
"""
LOOKUP = """
import ctypes
check_all()
libc = ctypes.CDLL('libc.so.6')
fd = os.open(f'{D}/f4', os.O_RDONLY)
got = ctypes.create_string_buffer(100)
print(libc.pread(fd, got, 100, ctypes.c_long(3)) == 100 and got.raw == CONTENT[4][3:103],
      libc.read(fd, got, 100) == 100 and got.raw == CONTENT[4][:100],
      libc.lseek(fd, ctypes.c_long(0), 1), libc.open(f'{D}/f5'.encode(), 0) - fd + 2)
"""
OWNERS = """
check_all()
for n in range(20):
    with open(f'{D}/f{n}', 'rb') as f:
        print(os.fstat(f.fileno()).st_uid - os.stat(f'{D}/f{n}').st_uid,
              os.fstat(f.fileno()).st_size, len(f.read()))
"""

BEHIND = """
import ctypes
check_all(); check_all()
print(ctypes.CDLL(sys.argv[2]).gets_libcs())
"""
NEXT = """
import ctypes
check_all(); check_all()
next_is_of_libc = ctypes.CDLL(sys.argv[2]).next_is_of_libc
print([next_is_of_libc(name) for name in (b'mmap', b'mmap64', b'munmap', b'mremap', b'madvise')])
"""


def refuse_writable_page():
    """Refuses mprotect(PROT_READ | PROT_WRITE) of one page, as the kernel does for a sealed
    page."""
    def load(offset):
        return 0x20, 0, 0, offset

    def go_on_if(value, skipped):
        return 0x15, 0, skipped, value

    # The offsets are those of the call's number and arguments in struct seccomp_data.
    number = 10 if os.uname().machine == "x86_64" else 226
    rows = [
        load(0), go_on_if(number, 5), load(24), go_on_if(mmap.PAGESIZE, 3), load(32),
        go_on_if(mmap.PROT_READ | mmap.PROT_WRITE, 1), (0x06, 0, 0, 0x00050000 | errno.EPERM),
        (0x06, 0, 0, 0x7fff0000)
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *row) for row in rows))
    filters = struct.pack("@HP", len(rows), ctypes.addressof(code))
    prctl = ctypes.CDLL(None).prctl
    no_new_privileges, seccomp, filter_mode = 38, 22, 2
    if prctl(no_new_privileges, 1, 0, 0, 0) != 0 or prctl(seccomp, filter_mode, filters) != 0:
        raise OSError("seccomp")


class PastUs(Job):
    says = "files are served by copies from now on, as in mode real"

    def need_ring(self):
        done = self.run_one(self.python(RING), shim=False)
        if "no ring" in done.err:
            self.skipTest("no ring of io_uring that is polled")

    def test_a_polled_ring_reads_files_opened_before_it_and_after(self):
        self.need_ring()
        self.check(self.python(RING))

    def test_a_ring_of_a_shared_liburing_reads_files_opened_before_it_and_after(self):
        job = [*self.python(LIBURING), program("libcompany_ring.so")]
        if "no ring" in self.run_one(job, shim=False).err:
            self.skipTest("no ring of io_uring")
        self.check(job)

    def check_deep(self, script, **options):
        """Runs the script with a library that is bound lazily, and with one that is bound when it
        is loaded. Returns the outcome of each."""
        return [
            self.check([*self.python(script), program(name)], **options)
            for name in ("libcompany_deep.so", "libcompany_deep_now.so")
        ]

    def test_a_library_with_its_own_scope_reads_files_opened_by_others(self):
        for done in self.check_deep(DEEP):
            self.assertEqual(done.out, "1 1 True\n")

    def test_changes_by_a_library_with_its_own_scope_are_seen_by_the_whole_job(self):
        for done in self.check_deep(CHANGES):
            self.assertEqual(done.out.splitlines(), [
                "write 1 new new", "print 1 new new", "truncate 1 old old", "rename 1 2 2",
                "unlink 1 2 2", "old text"
            ])

    def test_opens_through_a_table_of_a_library_with_its_own_scope_are_served(self):
        for done in self.check_deep(OPENS):
            self.assertEqual(done.report["opens"], 10, str(done))
            self.assertEqual(done.report["hits"]["ram"], 5, str(done))

    def test_a_table_of_a_library_with_its_own_scope_stays_read_only(self):
        for done in self.check_deep(PROTECTION, hits=None):
            self.assertEqual(done.out, "r--p\n")

    def test_a_table_that_cannot_be_changed_is_reported(self):
        done = self.check([*self.python(DEEP), program("libcompany_deep_now.so")],
                          preexec_fn=refuse_writable_page,
                          says=f"{self.says}: libcompany_deep_now.so calls .*, and this library "
                          "does not see it, so changes by this call to files are not seen")
        self.assertEqual(done.out, "1 1 True\n")

    def test_a_library_is_found_by_the_search_path_of_its_loader(self):
        script = "import ctypes\nprint(ctypes.CDLL(sys.argv[2]).load(b'libcompany_behind.so'))"
        done = self.check([*self.python(script), program("libcompany_loader.so")], hits=False)
        self.assertEqual(done.out, "1\n")

    def test_an_open_leaves_the_message_of_dlerror(self):
        self.assertIn("libnothere.so", self.check(self.python(DLERROR), hits=False).out)

    def test_a_library_with_its_own_scope_that_reads_nothing_leaves_files_in_memory(self):
        done = self.check(self.python(HARMLESS))
        self.assertGreaterEqual(done.report["calls_saved"], 1000)

    def test_functions_of_libc_looked_up_by_ctypes_read_served_files(self):
        done = self.check(self.python(LOOKUP))
        self.assertEqual(done.out, "True True 100 3\n")
        self.assertEqual(done.report["materialized"], 0, str(done))

    def test_a_preloaded_wrapper_that_calls_libcs_read_directly_is_reported(self):
        front = program("libcompany_front.so")
        self.check_job("read:DIR", "read:DIR", "fork:DIR", preload=[front, *self.preload],
                       says=f"{self.says}: .* calls read, and")

    def test_a_wrapper_in_front_that_looks_up_libcs_read_gets_ours(self):
        lookup = program("libcompany_lookup.so")
        self.check_job("read:DIR", "read:DIR", "fork:DIR", preload=[lookup, *self.preload])

    def test_a_wrapper_in_front_that_takes_the_next_read_changes_nothing(self):
        forward = program("libcompany_forward.so")
        self.check_job("read:DIR", "read:DIR", "fork:DIR", preload=[forward, *self.preload])

    def test_a_library_behind_is_asked_for_each_fstat_and_bytes_are_served(self):
        done = self.check(self.python(OWNERS),
                          preload=[*self.preload, program("libcompany_behind.so")])
        self.assertTrue(all(line.startswith("1000 ") for line in done.out.splitlines()), str(done))
        self.assertEqual(done.report["materialized"], 0, str(done))

    def test_a_library_behind_finds_libcs_functions_also_before_ours_has_started(self):
        behind = program("libcompany_behind.so")
        done = self.check([*self.python(BEHIND), behind], preload=[*self.preload, behind])
        self.assertEqual(done.out, "1\n")

    def test_a_library_that_overwrites_the_code_of_mmap_finds_libcs(self):
        done = self.check([*self.python(NEXT), program("libcompany_next.so")])
        self.assertEqual(done.out, "[1, 1, 1, 1, 1]\n")


if __name__ == "__main__":
    unittest.main()
