// A library that holds back rename() and pivot_root until a test releases them. STOP_CALL names two
// FIFOs, NAME.begun and NAME.go. The call opens the first for writing, then the second for reading.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

void stop() {
  const char* const name = getenv("STOP_CALL");
  if (name == nullptr) return;
  close(open((std::string(name) + ".begun").c_str(), O_WRONLY | O_CLOEXEC));
  close(open((std::string(name) + ".go").c_str(), O_RDONLY | O_CLOEXEC));
}

template <typename Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int rename(const char* from, const char* to) {
  stop();
  return next<int (*)(const char*, const char*)>("rename")(from, to);
}

extern "C" __attribute__((visibility("default"))) long syscall(long number, ...) {
  va_list list;
  va_start(list, number);
  long a[6];
  for (long& argument : a) argument = va_arg(list, long);
  va_end(list);
  if (number == SYS_pivot_root) stop();
  return next<long (*)(long, ...)>("syscall")(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
