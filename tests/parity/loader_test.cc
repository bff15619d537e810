// Functions that a program looks up in libc (by dlsym, on libc's handle or with RTLD_NEXT), as the
// bindings of other languages do.
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "tests/parity/linked/lookups.h"
#include "tests/support/parity_case.h"

namespace {

template <typename Signature>
Signature* of_libc(const char* name) {
  static void* const libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
  return reinterpret_cast<Signature*>(dlsym(libc, name));
}

}  // namespace

PARITY(Loader, FunctionsOfLibcReadFilesOpenedByOurs) {
  const int fd = CALL(open(t.file("a", 5000), O_RDONLY));
  char got[100] = {};
  CALL(of_libc<ssize_t(int, void*, std::size_t)>("read")(fd, got, sizeof got));
  t.bytes("read", got, sizeof got);
  CALL(of_libc<ssize_t(int, void*, std::size_t, off_t)>("pread64")(fd, got, sizeof got, 4000));
  t.bytes("pread64", got, sizeof got);
  CALL(of_libc<off_t(int, off_t, int)>("lseek")(fd, 0, SEEK_CUR));
  CALL(lseek(fd, 0, SEEK_CUR));
  struct ::stat st {};
  CALL(of_libc<int(int, struct ::stat*)>("fstat")(fd, &st));
  t.note("size", st.st_size);
  void* const mapped = of_libc<void*(void*, std::size_t, int, int, int, off_t)>("mmap")(
      nullptr, 5000, PROT_READ, MAP_PRIVATE, fd, 0);
  if (mapped != MAP_FAILED) {
    t.bytes("mmap", static_cast<const char*>(mapped) + 4096, 100);
    CALL(munmap(mapped, 5000));
  }
  const int copy = CALL(of_libc<int(int)>("dup")(fd));
  CALL(of_libc<int(int)>("close")(fd));
  CALL(read(copy, got, 10));
  CALL(close(copy));
}

PARITY(Loader, FunctionsOfLibcOpenFilesReadByOurs) {
  const int fd = CALL(of_libc<int(const char*, int, ...)>("open")(t.file("a", 5000), O_RDONLY));
  char got[100] = {};
  CALL(read(fd, got, sizeof got));
  t.bytes("read", got, sizeof got);
  CALL(of_libc<int(int)>("close")(fd));
  CALL(read(fd, got, 1));
}

PARITY(Loader, LibrariesOfTheProgramReadByLookedUpFunctions) {
  namespace linked = cube::parity::linked;
  const int fd = CALL(open(t.file("a", 5000), O_RDONLY));
  char got[100] = {};
  const auto next_read = reinterpret_cast<linked::Read*>(linked::next_of("read"));
  for (linked::Read* const read_it : {linked::g_early_read, linked::g_early_next_read, next_read}) {
    CALL(read_it(fd, got, sizeof got));
    t.bytes("read", got, sizeof got);
  }
  CALL(linked::next_of("cube_no_such_function") == nullptr);
  CALL(dlerror() != nullptr);
}

PARITY(Loader, LibraryIsLoadedByTheNameOfItsFd) {
  Dl_info own{};
  CALL(dladdr(reinterpret_cast<void*>(&cube::parity::linked::next_of), &own) != 0);
  const char* const path = t / "library.so";
  CALL(system(
      ("cp " + std::string(own.dli_fname) + " " + path + " && touch -d @1000 " + path).c_str()));
  CALL(close(CALL(open(path, O_RDONLY))));
  const std::string name = "/proc/self/fd/" + std::to_string(CALL(open(path, O_RDONLY)));
  void* const loaded = dlopen(name.c_str(), RTLD_NOW);
  CALL(loaded != nullptr);
  if (loaded != nullptr) CALL(dlclose(loaded));
}

PARITY(Loader, DlsymAndDlopenOfLibcMatchOurs) {
  const int fd = CALL(open(t.file("a", 5000), O_RDONLY));
  void* const libc = of_libc<void*(const char*, int)>("dlopen")("libc.so.6", RTLD_LAZY);
  void* const found = of_libc<void*(void*, const char*)>("dlsym")(libc, "read");
  char got[100] = {};
  CALL(reinterpret_cast<cube::parity::linked::Read*>(found)(fd, got, sizeof got));
  t.bytes("read", got, sizeof got);
}

PARITY(Loader, VforkOfLibcLeavesTheFdsOfTheParent) {
  const int fd = CALL(open(t.file("a", 5000), O_RDONLY));
  for (const char* const name : {"vfork", "__vfork"}) {
    const auto vfork_it = of_libc<pid_t()>(name);
    const pid_t child = vfork_it();
    if (child == 0) {
      char byte;
      if (read(fd, &byte, 1) != 1 || close(fd) != 0) _exit(1);
      execl("/bin/true", "true", static_cast<char*>(nullptr));
      _exit(2);
    }
    int status = 0;
    CALL(waitpid(child, &status, 0) == child);
    t.note("status", status);
    char got[100] = {};
    CALL(read(fd, got, sizeof got));
    t.bytes("read", got, sizeof got);
  }
}

PARITY(Loader, FailedLookupsSetTheError) {
  CALL(of_libc<void()>("cube_no_such_function") == nullptr);
  const char* const message = dlerror();
  CALL(message != nullptr && std::strstr(message, "cube_no_such_function") != nullptr);
  CALL(dlsym(RTLD_DEFAULT, "cube_no_such_function") == nullptr);
  CALL(dlsym(RTLD_NEXT, "read") != nullptr);
  CALL(dlsym(RTLD_DEFAULT, "read") == dlsym(RTLD_DEFAULT, "read"));
}
