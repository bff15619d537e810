// Calls that change which files the process may read. Each takes effect immediately, and open files
// stay open.
#include <grp.h>
#include <linux/capability.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "cache/base/sys.h"
#include "tests/support/parity_case.h"

namespace {

constexpr uid_t k_nobody = 65534;
constexpr gid_t k_staff = 4321;

// Opens files that only one user or only one group may read, before the change and again after it.
void with(cube::parity::Case& t, const char* what, const std::function<void()>& change) {
  t.line(what);
  t.in_child([&] {
    const int kept = CALL(open(t / "user", O_RDONLY));
    change();
    char got[4] = {};
    for (const char* name : {"user", "group", "all"}) {
      const int fd = CALL(open(t / name, O_RDONLY));
      CALL(read(fd, got, 4));
      CALL(access(t / name, R_OK));
      CALL(eaccess(t / name, R_OK));
      CALL(euidaccess(t / name, R_OK));
      struct stat st {};
      CALL(stat(t / name, &st));
      FILE* const stream = STDIO(nullptr, fopen(t / name, "r"));
      if (stream != nullptr) CALL(fclose(stream));
    }
    CALL(read(kept, got, 4));
    t.bytes("kept", got, 4);
    CALL(fsync(kept));
  });
}
void make_files(cube::parity::Case& t) {
  t.file("user", 100, 0600);
  t.file("group", 100, 0640);
  t.file("all", 100, 0644);
  CALL(chown(t / "group", 0, k_staff));
  for (const char* name : {"user", "group", "all"}) CALL(close(CALL(open(t / name, O_RDONLY))));
}

}  // namespace

PARITY(Identity, EveryCallThatSetsIds) {
  make_files(t);
  with(t, "setuid", [&] { CALL(setuid(k_nobody)); });
  with(t, "seteuid", [&] { CALL(seteuid(k_nobody)); });
  with(t, "setreuid", [&] { CALL(setreuid(k_nobody, k_nobody)); });
  with(t, "setresuid", [&] { CALL(setresuid(k_nobody, k_nobody, k_nobody)); });
  with(t, "setfsuid", [&] { CALL(setfsuid(k_nobody)); });
  with(t, "setgid and user", [&] {
    CALL(setgid(k_staff));
    CALL(setuid(k_nobody));
  });
  with(t, "setegid", [&] {
    CALL(setegid(k_staff));
    CALL(seteuid(k_nobody));
  });
  with(t, "setregid", [&] {
    CALL(setregid(k_staff, k_staff));
    CALL(seteuid(k_nobody));
  });
  with(t, "setresgid", [&] {
    CALL(setresgid(k_staff, k_staff, k_staff));
    CALL(seteuid(k_nobody));
  });
  with(t, "setfsgid", [&] {
    CALL(setfsgid(k_staff));
    CALL(setfsuid(k_nobody));
  });
  with(t, "setgroups", [&] {
    const gid_t groups[1] = {k_staff};
    CALL(setgroups(1, groups));
    CALL(seteuid(k_nobody));
  });
  with(t, "initgroups", [&] {
    CALL(initgroups("nobody", k_staff));
    CALL(seteuid(k_nobody));
  });
  with(t, "by number", [&] {
    CALL(syscall(SYS_setresuid, static_cast<long>(k_nobody), static_cast<long>(k_nobody),
                 static_cast<long>(k_nobody)));
  });
}

PARITY(Identity, FailuresAndQuestionsChangeNothing) {
  make_files(t);
  with(t, "refused", [&] {
    CALL(seteuid(k_nobody));
    CALL(setuid(12345));
    CALL(setgid(12345));
    CALL(setgroups(0, nullptr));
    CALL(chroot("/"));
    CALL(setresuid(5, 5, 5));
  });
  with(t, "back again", [&] {
    CALL(seteuid(k_nobody));
    CALL(open(t / "user", O_RDONLY));
    CALL(seteuid(0));
  });
  with(t, "questions", [&] {
    CALL(setfsuid(static_cast<uid_t>(-1)));
    CALL(setfsgid(static_cast<gid_t>(-1)));
  });
}

PARITY(Identity, NamespacesAndRoots) {
  t.dir("d");
  t.text("d/f", "below");
  t.text("f", "above");
  CALL(close(CALL(open(t / "f", O_RDONLY))));
  const auto look = [&] {
    char got[8] = {};
    CALL(read(CALL(open(t / "f", O_RDONLY)), got, 8));
    t.bytes("f", got, 8);
    CALL(read(CALL(open(t / "d/f", O_RDONLY)), got, 8));
    t.bytes("d/f", got, 8);
    CALL(open("/f", O_RDONLY));
  };
  t.in_child([&] {
    CALL(unshare(CLONE_FILES));
    look();
  });
  t.in_child([&] {
    CALL(unshare(CLONE_FS));
    CALL(chdir(t / "d"));
    look();
  });
  t.in_child([&] {
    // A mount over a directory makes its path name another directory.
    CALL(unshare(CLONE_NEWNS));
    CALL(mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr));
    CALL(mount("cubeshim-parity", t / "d", "tmpfs", 0, "size=1m"));
    CALL(open(t / "d/f", O_RDONLY));
    look();
  });
  t.in_child([&] {
    const int fd = CALL(open(t / "f", O_RDONLY));
    const int space = CALL(open("/proc/self/ns/mnt", O_RDONLY));
    CALL(setns(fd, 0));
    EXPECT_EQ(errno, EINVAL);
    CALL(setns(space, CLONE_NEWNS));
    look();
    char got[8] = {};
    CALL(read(fd, got, 8));
    t.bytes("kept", got, 8);
  });
  t.in_child([&] {
    CALL(chroot(t / "d"));
    CALL(chdir("/"));
    char got[8] = {};
    CALL(read(CALL(open("/f", O_RDONLY)), got, 8));
    t.bytes("/f", got, 8);
    CALL(open(t / "f", O_RDONLY));
  });
  t.in_child([&] { CALL(unshare(0x40)); });
}

// A set-user-ID program begins in this state: its real and effective users differ, and no call
// tells the library so.
PARITY(Identity, AccessAsksForTheRealUser) {
  make_files(t);
  namespace sys = cube::base::sys;
  sys::raw(SYS_setresuid, k_nobody, geteuid(), geteuid());
  for (const char* name : {"user", "group", "all"}) CALL(access(t / name, R_OK));
  sys::raw(SYS_setresuid, geteuid(), geteuid(), geteuid());
}

// A program can have an ambient capability, which open(2) uses and access(2) does not.
PARITY(Identity, AccessIgnoresACapabilityToReadDespiteTheMode) {
  make_files(t);
  CALL(mkdir(t / "closed", 0700));
  t.file("closed/f", 100, 0644);
  CALL(chmod(t / ".", 0755));
  t.in_child([&] {
    namespace sys = cube::base::sys;
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3]{};
    for (const char* name : {"user", "closed/f"}) CALL(close(CALL(open(t / name, O_RDONLY))));
    struct stat st {};
    CALL(stat(t / "closed/none", &st));
    sys::raw(SYS_prctl, PR_SET_KEEPCAPS, 1, 0, 0, 0);
    sys::raw(SYS_setresuid, k_nobody, k_nobody, k_nobody);
    data[0].effective = data[0].permitted = 1U << CAP_DAC_READ_SEARCH;
    sys::raw(SYS_capset, sys::arg(&header), sys::arg(data));
    for (const char* name : {"user", "closed/f", "closed/none"}) {
      CALL(access(t / name, F_OK));
      CALL(access(t / name, R_OK));
      CALL(eaccess(t / name, R_OK));
      CALL(faccessat(AT_FDCWD, t / name, R_OK, AT_EACCESS));
    }
  });
}

PARITY(Identity, CapabilitiesGivenUp) {
  make_files(t);
  with(t, "capset", [&] {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3]{};
    CALL(syscall(SYS_capget, &header, data));
    data[0].effective &= ~((1U << CAP_DAC_OVERRIDE) | (1U << CAP_DAC_READ_SEARCH));
    CALL(cube::parity::function<int(void*, const void*)>("capset")(&header, data));
  });
}

PARITY(Identity, SandboxesThatAreRefusedChangeNothing) {
  make_files(t);
  with(t, "prctl", [&] {
    CALL(prctl(PR_GET_DUMPABLE, 0, 0, 0, 0));
    CALL(prctl(PR_SET_SECCOMP, 99, 0, 0, 0));
    CALL(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, nullptr, 0, 0));
    CALL(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, 8, 0, 0));
  });
  with(t, "prctl after a clone", [&] {
    const long child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) _exit(0);
    CALL(waitpid(static_cast<pid_t>(child), nullptr, 0) == child);
    const int fd = CALL(open(t / "all", O_RDONLY));
    CALL(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, 8, 0, 0));
    char got[4] = {};
    CALL(read(fd, got, 4));
    CALL(close(fd));
  });
}
