// Files that are open in this process while another process renames them or a directory above them.
// When their fds are materialized, they still refer to the same files.
#include "tests/support/preload_job.h"

using cube::preload::Job;

namespace {

// A shell with the library, started before the file is open. do_there(command) returns the
// command's status.
constexpr const char* k_helpers = R"(
import fcntl
os.makedirs(D + '/a/b')
name = D + '/a/b/log'
with open(name, 'w') as f: f.write('first\n')
os.utime(name, (1000, 1000))
shell = subprocess.Popen(['sh', '-c', 'while read -r line; do eval "$line"; echo $?; done'],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=D)
def do_there(command):
  shell.stdin.write(command + '\n')
  shell.stdin.flush()
  return int(shell.stdout.readline())
moves = [
  ('mv a/b/log a/b/log.1', '/a/b/log.1'),
  ('mv a/b/log a/log.old', '/a/log.old'),
  ('mkdir a/c; mv a/b/log a/c/log', '/a/c/log'),
  ('mv a/b a/x', '/a/x/log'),
  ('mv a x', '/x/b/log'),
  ('mv a/b a/x; mkdir a/b; echo other > a/b/log', '/a/x/log'),
]
)";

// Runs the script once for each move, with `command` and `moved` set.
void run_for_each_move(const char* script) {
  for (int move = 0; move < 6; ++move) {
    SCOPED_TRACE(move);
    Job job;
    const auto outcome =
        job.python(k_helpers + ("command, moved = moves[" + std::to_string(move) + "]") + script);
    expect_well(outcome);
  }
}

}  // namespace

TEST(MovedFile, FdIsOfTheFileUnderItsNewName) {
  run_for_each_move(R"(
fd = os.open(name, os.O_RDONLY)
assert os.read(fd, 100) == b'first\n'
inode = os.fstat(fd).st_ino
assert do_there(command) == 0
assert do_there('echo second >> .' + moved) == 0
assert os.read(fd, 100) == b'second\n'
assert os.fstat(fd).st_ino == inode == os.stat(D + moved).st_ino
os.fchmod(fd, 0o640)
assert os.stat(D + moved).st_mode & 0o777 == 0o640
shell.communicate()
)");
}

TEST(MovedFile, LockExcludesOpenersOfTheNewName) {
  run_for_each_move(R"(
fd = os.open(name, os.O_RDONLY)
assert os.read(fd, 100) == b'first\n'
assert do_there(command) == 0
fcntl.flock(fd, fcntl.LOCK_EX)
assert do_there('flock -n -E 99 .' + moved + ' true') == 99
shell.communicate()
)");
}

// ext4 gives the inode of a removed file to the next file that is made in the directory.
TEST(MovedFile, FdIsNeverOfANewFileWithTheSameInode) {
  for (const char* name : {"log", "other"}) {
    SCOPED_TRACE(name);
    Job job;
    job.env["NEW_NAME"] = name;
    const auto outcome = job.python(std::string(k_helpers) + R"(
fd = os.open(name, os.O_RDONLY)
assert os.read(fd, 3) == b'fir'
inode = os.fstat(fd).st_ino
new = 'a/b/' + os.environ['NEW_NAME']
for _ in range(50):
  assert do_there('rm -f a/b/log ' + new + '; echo other > ' + new + '; touch -d @1000 ' + new) == 0
  if os.stat(D + '/' + new).st_ino == inode: break
else: sys.exit(99)
fcntl.flock(fd, fcntl.LOCK_EX)
os.fchmod(fd, 0o600)
assert os.stat(D + '/' + new).st_mode & 0o777 != 0o600
assert do_there('flock -n -E 99 ' + new + ' true') == 0
assert os.pread(fd, 100, 0) == b'first\n'
assert os.read(os.open(f'/proc/self/fd/{fd}', os.O_RDONLY), 100) == b'first\n'
shell.communicate()
)");
    if (outcome.status == 99) GTEST_SKIP() << "inodes are not used again here";
    EXPECT_EQ(outcome.status, 0) << outcome.out << outcome.err;
  }
}

// Except for O_LARGEFILE, the fd has the flags with which the program opened it.
TEST(MovedFile, FdHasTheFlagsOfItsOpen) {
  run_for_each_move(R"(
fd = os.open(name, os.O_RDONLY)
assert do_there(command) == 0
os.fchmod(fd, 0o640)
assert fcntl.fcntl(fd, fcntl.F_GETFL) & ~0o100000 == os.O_RDONLY
shell.communicate()
)");
}
