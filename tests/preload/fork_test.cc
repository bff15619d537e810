// Children of all kinds: forked while threads run, vforked as in CPython, spawned, and statically
// linked.
#include "tests/support/preload_job.h"

using cube::preload::Job;

TEST(Fork, WorksWhileThreadsRead) {
  Job job;
  expect_well(job.helper({"fork-threads", job.data(), "10", "30"}));
  EXPECT_GT(job.report("hits.ram"), 300);
}

TEST(Fork, WorksWhileThreadsReadInModeReal) {
  Job job;
  job.env["CUBESHIM_MODE"] = "real";
  expect_well(job.helper({"fork-threads", job.data(), "10", "10"}));
}

TEST(Vfork, WorksAsInSubprocess) {
  Job job;
  expect_well(job.helper({"vfork", job.file(6), cube::preload::helper_path()}));
}

TEST(Vfork, StartsAStaticProgram) {
  Job job;
  expect_well(job.helper({"vfork", job.file(7), PRELOAD_STATIC}));
}

TEST(Vfork, ChildClosesAllWhileOtherThreadsRead) {
  Job job;
  expect_well(job.helper({"vfork-threads", job.data(), "10", cube::preload::helper_path()}));
}

TEST(Vfork, ChildClosesAnFdThatAnotherThreadHasOpenedMeanwhile) {
  Job job;
  expect_well(job.helper({"vfork-close", job.file(6)}));
}

TEST(Vfork, ChildThatHasThePidOfItsParentChangesNoFdOfTheParent) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  Job job;
  const std::string preload = "LD_PRELOAD=" + job.env.extract("LD_PRELOAD").mapped();
  expect_well(job.run({"unshare", "-pf", "env", preload, cube::preload::helper_path(), "vfork-twin",
                       job.file(6), job.file(7)}));
  EXPECT_EQ(job.report("opens"), 2) << job.report_text();
}

// The library registers its handlers before the shim. So its `prepare` runs after the shim's, and
// its `child` before the shim's.
TEST(Fork, HandlersOpenFilesAfterThePreparation) {
  Job job;
  job.env["LD_PRELOAD"] += ":" PRELOAD_FORK_HANDLERS;
  job.env["FORK_HANDLER_FILE"] = job.file(6);
  job.env["CUBESHIM_LOG"] = "info";
  const auto o = job.python(R"(
import ctypes
def handlers_fd(): return ctypes.c_int.in_dll(ctypes.CDLL(None), 'fork_handlers_fd').value
for round in range(3):
  check(5)
  pid = os.fork()
  if pid == 0:
    fd = handlers_fd()
    assert os.read(fd, 10) == content(6)[20:30]
    check(5)
    grandchild = os.fork()
    if grandchild == 0: os._exit(os.read(handlers_fd(), 100) != content(6)[20:120])
    os._exit(os.waitpid(grandchild, 0)[1] != 0)
  assert os.waitpid(pid, 0)[1] == 0
  assert os.lseek(handlers_fd(), 0, os.SEEK_CUR) == 30
)");
  expect_well(o);
  EXPECT_EQ(o.err.find("bypassed libc"), std::string::npos) << o.err;
}

TEST(Exec, EveryFormHandsOnTheFd) {
  Job job;
  for (const char* how : {"execv", "execve", "execvp", "execvpe", "execl", "execlp", "execle",
                          "execveat", "fexecve", "syscall"}) {
    SCOPED_TRACE(how);
    expect_well(job.helper({"exec", job.file(6), cube::preload::helper_path(), how}));
    job.checks_region = false;
    expect_well(job.helper({"exec", job.file(6), PRELOAD_STATIC, how}));
  }
}

TEST(Exec, RegionIsRemovedThoughTheLastProcessBecomesStatic) {
  GTEST_SKIP() << "known limit: the last process cannot know that its new image will not report "
                  "back: doc/SEMANTICS.md";
  Job job;
  expect_well(job.helper({"exec", job.file(6), PRELOAD_STATIC, "execv"}));
}

TEST(Exec, RegionIsRemovedAfterEveryForm) {
  for (const char* how : {"execv", "fexecve", "syscall"}) {
    Job job;
    expect_well(job.helper({"exec", job.file(6), cube::preload::helper_path(), how}));
  }
}

TEST(Subprocess, InheritsFilesInEveryWay) {
  Job job;
  const auto o = job.python(R"(
cat = ['/bin/cat']
for close_fds in (True, False):
  for n in (3, 5, 6, 7):
    check(n)
    with open(path(n), 'rb') as f, open(path(n), 'rb') as other:
      # As standard input, from the shared offset.
      head = os.read(f.fileno(), 10)
      got = subprocess.run(cat, stdin=f, stdout=subprocess.PIPE, close_fds=close_fds,
                           check=True).stdout
      assert head + got == content(n), (n, close_fds)
      assert os.lseek(f.fileno(), 0, os.SEEK_CUR) == len(content(n))
      # By its fd.
      os.lseek(f.fileno(), 0, os.SEEK_SET)
      got = subprocess.run(['/bin/sh', '-c', f'cat <&{f.fileno()}'], stdout=subprocess.PIPE,
                           pass_fds=[f.fileno()], check=True).stdout
      assert got == content(n), n
      # The parent's own fds are unchanged.
      assert other.read() == content(n)
    # A child that inherits nothing.
    with open(path(n), 'rb') as f:
      assert subprocess.run(['/bin/true'], close_fds=close_fds).returncode == 0
      assert f.read(20) == content(n)[:20]
      assert subprocess.run(['/bin/true'], close_fds=close_fds).returncode == 0
      assert f.read() == content(n)[20:]
)");
  expect_well(o);
}

TEST(Subprocess, ParentOpensWhileTheChildStarts) {
  Job job;
  expect_well(job.python(R"(
import threading
stop = False
def reader():
  while not stop:
    for n in range(10): check(n)
threads = [threading.Thread(target=reader) for _ in range(3)]
for t in threads: t.start()
try:
  for i in range(25):
    done = subprocess.run(['/bin/cat', path(6)], stdout=subprocess.PIPE, check=True)
    assert done.stdout == content(6)
finally:
  stop = True
  for t in threads: t.join()
)"));
}

TEST(Subprocess, PreexecFunctionForks) {
  Job job;
  expect_well(job.python(R"(
with open(path(6), 'rb') as f:
  f.read(10)
  def before(): os.read(f.fileno(), 1); check(5)
  assert subprocess.run(['/bin/true'], preexec_fn=before, pass_fds=[f.fileno()]).returncode == 0
)"));
}

TEST(Subprocess, MultiprocessingReadsInTheChildren) {
  Job job;
  const auto o = job.python(R"(
import multiprocessing as mp
def work(n): check(n); return os.getpid()
for method in ('fork', ):
  with mp.get_context(method).Pool(3) as pool:
    for i in range(5): assert len(pool.map(work, range(10))) == 10
check(1)
)");
  expect_well(o);
  EXPECT_EQ(job.report("misses"), 10);
}

TEST(Shell, ReadsThroughRedirections) {
  Job job;
  cube::tests::TempDir::write_file(job.data() + "/lines", "one\ntwo\nthree\n");
  const std::string lines = job.data() + "/lines";
  const auto o = job.run(
      {"/bin/bash", "-c",
       "exec 5<" + lines +
           "; read a <&5; read b <&5; echo $a $b; cat <&5; while read x; do echo - $x; done < " +
           lines + "; head -n1 < " + lines + "; (read y; echo y=$y; cat) < " + lines +
           "; . /dev/stdin <<< 'echo sourced'"});
  EXPECT_EQ(o.out, "one two\nthree\n- one\n- two\n- three\none\ny=one\ntwo\nthree\nsourced\n")
      << o.err;
}

TEST(Shell, SourcesAndRunsCoveredScripts) {
  Job job;
  cube::tests::TempDir::write_file(job.data() + "/s.sh",
                                   "echo script $1\ncat <<X\nhere\nX\nexit 3\n");
  const auto o = job.run({"/bin/bash", job.data() + "/s.sh", "arg"});
  EXPECT_EQ(o.out, "script arg\nhere\n");
  EXPECT_EQ(o.status, 3);
  cube::tests::TempDir::write_file(job.data() + "/p.py",
                                   "import sys\nprint('python', sys.argv[1])\n");
  EXPECT_EQ(job.run({"/usr/bin/python3", job.data() + "/p.py", "x"}).out, "python x\n");
}
