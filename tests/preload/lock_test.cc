// Readers that lock the files that they read, like HDF5 and SQLite, while other processes lock and
// write these files.
#include "tests/support/preload_job.h"

using cube::preload::Job;

TEST(Lock, ReadersThatLockReadTheOriginOnce) {
  Job job;
  expect_well(job.python(R"(
import fcntl
for epoch in range(3):
  for lock in (fcntl.flock, fcntl.lockf):
    fd = os.open(path(7), os.O_RDONLY)
    lock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    assert os.pread(fd, 200000, 5) == content(7)[5:]
    assert os.read(fd, 10) == content(7)[:10]
    assert os.read(fd, 10) == content(7)[10:20]
    lock(fd, fcntl.LOCK_UN)
    os.close(fd)
)"));
  EXPECT_EQ(job.report("misses"), 1);
  EXPECT_EQ(job.report("materialized"), 0);
  EXPECT_EQ(job.report("locked"), 6);
  EXPECT_EQ(job.report("origin.bytes"), 200000);
  EXPECT_EQ(job.report("bytes_served"), 6 * (200000 - 5 + 20));
}

TEST(Lock, SharedLocksWaitForWritersAndSeeTheirWrites) {
  for (const char* lock : {"flock", "lockf"}) {
    SCOPED_TRACE(lock);
    Job job;
    expect_well(job.python(std::string("lock_name = '") + lock + R"('
import fcntl
lock = getattr(fcntl, lock_name)
def strangers_holder():
  # It does not know the cache.
  env = {k: v for k, v in os.environ.items() if not k.startswith('CUBESHIM') and k != 'LD_PRELOAD'}
  child = subprocess.Popen([sys.executable, '-c', f'''
import fcntl, sys
with open({path(4)!r}, 'r+b', buffering=0) as f:
  sys.stdin.readline()
  fcntl.{lock_name}(f, fcntl.LOCK_EX)
  f.write(b'first')
  print('locked', flush=True)
  sys.stdin.readline()
  f.seek(0)
  f.write(b'later')
'''], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
  return child
# Before the open: a file that is open when a child starts is the kernel's from then on.
child = strangers_holder()
def tell(word):
  child.stdin.write(word + '\n')
  child.stdin.flush()
fd = os.open(path(4), os.O_RDONLY)
assert os.pread(fd, 5, 0) == content(4)[:5]
tell('lock')
assert child.stdout.readline() == 'locked\n'
try:
  lock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
  raise AssertionError('locked beside an exclusive lock')
except BlockingIOError:
  pass
tell('go')
lock(fd, fcntl.LOCK_SH)
assert os.pread(fd, 5, 0) == b'later', os.pread(fd, 5, 0)
assert child.wait() == 0
# A writer waits for this process.
other = subprocess.run([sys.executable, '-c', f'''
import fcntl
with open({path(4)!r}, 'r+b') as f:
  try: fcntl.{lock_name}(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except BlockingIOError: print('busy')
'''], capture_output=True, text=True)
assert other.stdout == 'busy\n', other
lock(fd, fcntl.LOCK_UN)
os.close(fd)
)"));
  }
}

// The change is not reported. In mode real, a lock on the origin's file does not apply to its
// copies.
TEST(Lock, LocksTheOriginsFileAndSeesItsChanges) {
  for (const char* mode : {"real", "virtual"}) {
    SCOPED_TRACE(mode);
    Job job;
    job.env["CUBESHIM_MODE"] = mode;
    expect_well(job.python(R"py(
import fcntl
strangers = {k: v for k, v in os.environ.items()
             if not k.startswith('CUBESHIM') and k != 'LD_PRELOAD'}
def stranger(code):
  return subprocess.Popen([sys.executable, '-c', code], env=strangers, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True)
# Before the open: a file that is open when a child starts is the kernel's from then on.
writer = stranger(f'''
input()
open({path(4)!r}, 'r+b').write(b'newer')
print('done', flush=True)
input()
''')
locker = stranger(f'''
import fcntl
input()
with open({path(4)!r}, 'rb') as file:
  try:
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    print('free', flush=True)
  except BlockingIOError:
    print('locked', flush=True)
''')
fd = os.open(path(4), os.O_RDONLY)
assert os.pread(fd, 5, 0) == content(4)[:5]
writer.stdin.write('\n')
writer.stdin.flush()
assert writer.stdout.readline() == 'done\n'
fcntl.flock(fd, fcntl.LOCK_SH)
assert os.pread(fd, 10, 0) == b'newer' + content(4)[5:10]
locker.stdin.write('\n')
locker.stdin.flush()
assert locker.stdout.readline() == 'locked\n'
for child in writer, locker:
  child.communicate('\n' if child is writer else None)
)py"));
  }
}

// The kernel drops all POSIX locks of a process on a file when the process closes any fd of it.
TEST(Lock, PosixLockOutlastsOtherOpensOfTheFile) {
  for (const char* other : {"changed", "link", "replaced"}) {
    SCOPED_TRACE(other);
    Job job;
    job.env["OTHER"] = other;
    expect_well(job.python(R"py(
import fcntl
strangers = {k: v for k, v in os.environ.items()
             if not k.startswith('CUBESHIM') and k != 'LD_PRELOAD'}
# Before the open: a file that is open when a child starts is the kernel's from then on.
stranger = subprocess.Popen([sys.executable, '-c', f'''
import fcntl, os, sys
for line in sys.stdin:
  if line == 'replace\\n':
    with open({path(5)!r} + '.new', 'wb') as file: file.write(b'new')
    os.replace({path(5)!r} + '.new', {path(5)!r})
  elif line == 'change\\n':
    os.utime({path(4)!r}, (1000, 1000))
  else:
    with open(line[:-1], 'r+b') as file:
      try: fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
      except BlockingIOError: print('locked', flush=True)
      else: print('free', flush=True)
      continue
  print('done', flush=True)
'''], env=strangers, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
def ask(line):
  stranger.stdin.write(line + '\n')
  stranger.stdin.flush()
  return stranger.stdout.readline()[:-1]
way = os.environ['OTHER']
if way == 'replaced':
  old = os.open(path(5), os.O_RDONLY)
  assert os.read(old, 3) == content(5)[:3]
  assert ask('replace') == 'done'
  name, fd = path(5), os.open(path(5), os.O_RDWR)
  fcntl.lockf(fd, fcntl.LOCK_EX)
  assert ask(name) == 'locked'
  os.fsync(old)
  assert os.read(old, 3) == content(5)[3:6]
else:
  os.link(path(4), path(4) + '.link')
  name, fd = path(4), os.open(path(4), os.O_RDONLY)
  assert os.read(fd, 3) == content(4)[:3]
  fcntl.lockf(fd, fcntl.LOCK_SH)
  assert ask(name) == 'locked'
  if way == 'changed': assert ask('change') == 'done'
  again = os.open(path(4) + '.link' if way == 'link' else path(4), os.O_RDONLY)
  assert os.read(again, 3) == content(4)[:3]
assert ask(name) == 'locked'
fcntl.lockf(fd, fcntl.LOCK_UN)
assert ask(name) == 'free'
stranger.communicate()
)py"));
  }
}

TEST(Lock, FileThatWasUnlockedIsServedAgain) {
  Job job;
  expect_well(job.python(R"(
import fcntl
for release in 'close', 'unlock':
  os.utime(path(4), (1000 if release == 'close' else 2000,) * 2)
  fd = os.open(path(4), os.O_RDWR)
  fcntl.lockf(fd, fcntl.LOCK_EX)
  for _ in range(2):
    kernels = os.open(path(4), os.O_RDONLY)
    assert os.read(kernels, 5) == content(4)[:5]
  if release == 'unlock': fcntl.lockf(fd, fcntl.LOCK_UN)
  os.close(fd)
  with open(path(4), 'rb') as file: assert file.read() == content(4)
)"));
  EXPECT_EQ(job.report("misses"), 2);
}
