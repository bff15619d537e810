// Unwinds through frames of the library: exceptions of callbacks, cancellation of a thread in a
// call, the end of a thread. Prints the same natively and under the library.
//   unwind DIRECTORY
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

namespace {

std::string g_file;

template <typename Body>
void expect_throw(const char* what, Body&& body) {
  try {
    body();
    std::printf("%s: nothing thrown\n", what);
  } catch (const std::runtime_error& error) {
    std::printf("%s: %s\n", what, error.what());
  }
}

struct Guard {
  const char* what;
  ~Guard() { std::printf("%s: unwound\n", what); }
};

void* ends_itself(void*) {
  const Guard guard{"pthread_exit"};
  char byte = 0;
  const int fd = open(g_file.c_str(), O_RDONLY);
  const bool is_read = read(fd, &byte, 1) == 1;
  close(fd);
  pthread_exit(is_read ? &g_file : nullptr);
}

// Waits in open, a cancellation point, for a reader that never comes.
void* waits_in_open(void* fifo) {
  const Guard guard{"pthread_cancel"};
  open(static_cast<const char*>(fifo), O_WRONLY);
  return nullptr;
}

// The cancellation is already pending before the call, which is answered in user space.
struct Hit {
  const char* name;
  void (*call)(int fd);
};
constexpr Hit k_hits[] = {
    {"open", [](int) { open(g_file.c_str(), O_RDONLY); }},
    {"fopen", [](int) { fopen(g_file.c_str(), "r"); }},
    {"read",
     [](int fd) {
       char byte;
       read(fd, &byte, 1);
     }},
    {"close", [](int fd) { close(fd); }},
    {"creat", [](int) { creat(g_file.c_str(), 0600); }},
};
void* cancelled_in_a_hit(void* of) {
  const auto* const hit = static_cast<const Hit*>(of);
  const Guard guard{hit->name};
  const int fd = open(g_file.c_str(), O_RDONLY);
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
  pthread_cancel(pthread_self());
  pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, nullptr);
  hit->call(fd);
  return nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  std::setvbuf(stdout, nullptr, _IONBF, 0);
  const std::string directory = argv[1];
  g_file = directory + "/file";
  close(open(g_file.c_str(), O_RDONLY));  // the next open of it is a hit
  expect_throw("scandir", [&] {
    dirent** names = nullptr;
    scandir(
        directory.c_str(), &names,
        [](const dirent*) -> int { throw std::runtime_error("by the filter"); }, nullptr);
  });
  expect_throw("ftw", [&] {
    ftw(
        directory.c_str(),
        [](const char*, const struct stat*, int) -> int {
          throw std::runtime_error("by the visitor");
        },
        4);
  });
  expect_throw("the program", [] { throw std::runtime_error("by nobody else"); });

  pthread_t thread{};
  void* result = nullptr;
  pthread_create(&thread, nullptr, ends_itself, nullptr);
  pthread_join(thread, &result);
  std::printf("pthread_exit: %d\n", result == &g_file);

  for (const Hit& hit : k_hits) {
    pthread_create(&thread, nullptr, cancelled_in_a_hit, const_cast<Hit*>(&hit));
    pthread_join(thread, &result);
    std::printf("%s: %d\n", hit.name, result == PTHREAD_CANCELED);
  }

  std::string fifo = directory + "/fifo";
  pthread_create(&thread, nullptr, waits_in_open, fifo.data());
  pthread_cancel(thread);
  pthread_join(thread, &result);
  std::printf("pthread_cancel: %d\n", result == PTHREAD_CANCELED);
}
