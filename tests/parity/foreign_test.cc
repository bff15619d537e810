// Changes that are made without an open of the path in this process: through files that a spawned
// child opens when it starts, files opened by handle, fds from other processes, and the rights of
// directories.
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#include <vector>

#include "cache/base/sys.h"
#include "tests/parity/fd_message.h"
#include "tests/support/parity_case.h"

extern char** environ;

namespace {

namespace sys = cube::base::sys;

// Shows the file through a new fd and through `old`, which was opened before the change.
void look(cube::parity::Case& t, const char* path, int old) {
  char got[8] = {};
  const int fd = CALL(open(path, O_RDONLY));
  CALL(pread(fd, got, 8, 0));
  t.bytes("new", got, 8);
  CALL(pread(old, got, 8, 0));
  t.bytes("old", got, 8);
  CALL(close(fd));
  CALL(close(old));
}

// Spawns a child without the library, which writes to its stdout, a file.
int spawn_echo(cube::parity::Case& t, posix_spawn_file_actions_t& actions, bool by_path) {
  const char* const arguments[] = {"sh", "-c", "printf CHANGED", nullptr};
  const char* const environment[] = {"PATH=/usr/bin:/bin", nullptr};
  pid_t child = 0;
  auto* const spawn = by_path ? posix_spawnp : posix_spawn;
  CALL(spawn(&child, "/bin/sh", &actions, nullptr, const_cast<char* const*>(arguments),
             const_cast<char* const*>(environment)));
  int status = -1;
  waitpid(child, &status, 0);
  posix_spawn_file_actions_destroy(&actions);
  return status;
}

}  // namespace

PARITY(Foreign, FileThatASpawnedChildOpensForWritingIsSeen) {
  for (const char* name : {"a", "b"}) {
    t.file(name, 5000);
    const int old = CALL(open(t / name, O_RDONLY));
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addclose(&actions, 0);
    posix_spawn_file_actions_addopen(&actions, 1, t / name, O_WRONLY, 0);
    CALL(spawn_echo(t, actions, *name == 'b'));
    look(t, t / name, old);
  }
}

PARITY(Foreign, FileThatASpawnedChildOpensInAnotherDirectoryIsSeen) {
  t.dir("d");
  t.dir("e");
  for (const char* name : {"d/a", "e/a"}) {
    t.file(name, 5000);
    const int old = CALL(open(t / name, O_RDONLY));
    const int dir = CALL(open(t / "e", O_RDONLY | O_DIRECTORY));
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addchdir_np(&actions, t / "d");
    if (*name == 'e') posix_spawn_file_actions_addfchdir_np(&actions, dir);
    posix_spawn_file_actions_addopen(&actions, 1, "a", O_WRONLY | O_APPEND, 0);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    CALL(spawn_echo(t, actions, false));
    struct stat st {};
    CALL(stat(t / name, &st));
    t.line(std::to_string(st.st_size));
    CALL(close(dir));
    look(t, t / name, old);
  }
}

PARITY(Foreign, TruncationByAFailedSpawnIsSeen) {
  t.file("a", 5000);
  const int old = CALL(open(t / "a", O_RDONLY));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, t / "a", O_WRONLY | O_TRUNC, 0);
  const char* const arguments[] = {"none", nullptr};
  pid_t child = 0;
  const int error = CALL(posix_spawn(&child, t / "none", &actions, nullptr,
                                     const_cast<char* const*>(arguments), environ));
  // Before glibc 2.24, posix_spawn does not report that its child failed, so the child must be
  // reaped.
  if (error == 0) waitpid(child, nullptr, 0);
  posix_spawn_file_actions_destroy(&actions);
  look(t, t / "a", old);
}

PARITY(Foreign, FileOpenedByItsHandleForWritingIsSeen) {
  for (const bool by_number : {false, true}) {
    const char* const name = by_number ? "b" : "a";
    t.file(name, 5000);
    const int old = CALL(open(t / name, O_RDONLY));
    const int mount = CALL(open(t.root().c_str(), O_RDONLY | O_DIRECTORY));
    alignas(file_handle) char room[sizeof(file_handle) + 128];
    auto* const handle = reinterpret_cast<file_handle*>(room);
    handle->handle_bytes = 128;
    int id = 0;
    // Not every file system has handles, and their use needs a privilege.
    if (name_to_handle_at(AT_FDCWD, t / name, handle, &id, 0) == 0) {
      const int fd = by_number
                         ? static_cast<int>(syscall(SYS_open_by_handle_at, mount, handle, O_WRONLY))
                         : open_by_handle_at(mount, handle, O_WRONLY);
      if (fd >= 0) {
        CALL(write(fd, "CHANGED", 7));
        CALL(close(fd));
      }
    }
    CALL(close(mount));
    look(t, t / name, old);
  }
}

// The sender represents a process without the library that has opened the file for writing.
PARITY(Foreign, WritesThroughAReceivedFdAreSeen) {
  const auto receive = [](int i, int socket, mmsghdr& message) -> long {
    switch (i) {
      case 0: return recvmsg(socket, &message.msg_hdr, 0);
      case 1: return recvmmsg(socket, &message, 1, 0, nullptr);
      case 2: return syscall(SYS_recvmsg, socket, &message.msg_hdr, 0L);
      default: return syscall(SYS_recvmmsg, socket, &message, 1L, 0L, nullptr);
    }
  };
  for (int i = 0; i < 4; ++i) {
    const std::string name = "a" + std::to_string(i);
    t.file(name, 5000);
    const int old = CALL(open(t / name, O_RDONLY));
    int pair[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    const int behind = static_cast<int>(sys::open(t / name, O_WRONLY | O_CLOEXEC));
    cube::parity::FdMessage message;
    message.carry({behind});
    mmsghdr many{message.head, 0};
    CALL(sendmsg(pair[0], &many.msg_hdr, 0));
    sys::close(behind);
    CALL(receive(i, pair[1], many));
    message.head = many.msg_hdr;
    const int received = message.fds().at(0);
    CALL(write(received, "CHANGED", 7));
    CALL(close(received));
    close(pair[0]);
    close(pair[1]);
    look(t, t / name, old);
  }
}

// A directory is removed without the library's knowledge. Cached files below it can still be
// opened. If the directory's rights were changed, they cannot, because only the kernel then knows
// which processes have access.
PARITY(Foreign, RightsOfADirectoryDecideOnAllBelow) {
  const auto change = [&](int i, const char* path, int fd) -> int {
    switch (i) {
      case 0: return chmod(path, 0700);
      case 1: return fchmod(fd, 0700);
      case 2: return fchmodat(AT_FDCWD, path, 0700, 0);
      case 3: return lchown(path, 1, 1);
#if defined(SYS_chmod)
      case 4: return static_cast<int>(syscall(SYS_chmod, path, 0700));
#else
      case 4: return static_cast<int>(syscall(SYS_fchmodat, AT_FDCWD, path, 0700));
#endif
      case 5:
        return static_cast<int>(syscall(452 /* fchmodat2 */, AT_FDCWD, path, 0700L, 0L)) == 0
                   ? 0
                   : chmod(path, 0700);
      default: return -1;
    }
  };
  for (int i = 0; i < 6; ++i) {
    const std::string name = "d" + std::to_string(i);
    t.dir(name);
    t.dir(name + "/e");
    t.file(name + "/e/a", 100);
    CALL(close(CALL(open(t / (name + "/e/a"), O_RDONLY))));
    const int fd = CALL(open(t / name, O_RDONLY | O_DIRECTORY));
    t.note(name.c_str(), change(i, t / name, fd));
    CALL(close(fd));
    sys::rename(t / name, t / (name + " is away"));
    CALL(open(t / (name + "/e/a"), O_RDONLY));
    EXPECT_EQ(errno, ENOENT) << i;
  }
}
