# what: Python: a file that is open for reading is written, grown, cut, replaced and removed, by the
#   process itself and by one that was started before
# version: /usr/bin/python3 --version
# run
import os, subprocess, sys

data = os.environ["DATA"] + "/"
code = "import os, sys\nfor line in sys.stdin:\n exec(line)\n print('done', flush=True)"
other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, text=True)


def there(line):
    other.stdin.write(line + "\n")
    other.stdin.flush()
    assert other.stdout.readline() == "done\n"


def here(line):
    exec(line)


CHANGES = {
    "written": "fd = os.open({0!r}, os.O_WRONLY); os.pwrite(fd, b'CHANGED', 3); os.close(fd)",
    "grown": "open({0!r}, 'ab').write(b'and more of it')", "cut": "os.truncate({0!r}, 9)",
    "emptied and written": "open({0!r}, 'wb').write(b'something else, longer than before')",
    "replaced": "open({0!r} + '.new', 'wb').write(b'another file'); os.replace({0!r} + '.new', "
                "{0!r})",
    "renamed": "os.rename({0!r}, {0!r} + '.old')", "removed": "os.remove({0!r})",
    "linked and changed": "os.link({0!r}, {0!r} + '.link'); open({0!r} + '.link', "
                          "'r+b').write(b'LINK')",
}
for who in (here, there):
    for number, (what, change) in enumerate(CHANGES.items()):
        path = f"{data}open_{who.__name__}_{number}"
        open(path, "wb").write(b"the first content of the file")
        os.utime(path, (10**9, 10**9))
        warm = open(path, "rb").read()
        unbuffered, buffered, fd = open(path, "rb",
                                        buffering=0), open(path, "rb"), os.open(path, os.O_RDONLY)
        first = unbuffered.read(4), buffered.read(4), os.read(fd, 4), os.fstat(fd).st_size
        who(change.format(path))
        print(who.__name__, what, first, unbuffered.read(), buffered.read(), os.pread(fd, 20, 2),
              os.read(fd, 100),
              os.fstat(fd).st_size, os.lseek(fd, 0, 1))
        try:
            print(open(path, "rb").read(), os.stat(path).st_size)
        except OSError as e:
            print(e.strerror)
        print(os.lseek(fd, 0, 0), os.read(fd, 100), unbuffered.seek(1),
              unbuffered.readinto(bytearray(10)), unbuffered.tell())
        os.close(fd)
        unbuffered.close()
        buffered.close()
other.stdin.close()
print(other.wait())
