// Listens for announcements and prints them. Usage: announced SOCKET PREFIX COUNT. Each line has
// the reader's number, the sequence number and the path. After COUNT lines, the program waits until
// its stdin ends.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "prefetch/order/announced/announcements.h"
#include "prefetch/threads/event_count.h"

int main(int argc, char** argv) {
  using namespace cube::prefetch;
  if (argc != 4) return 2;
  EventCount arrivals;
  std::string why;
  const auto source = Announcements::start(
      {argv[1], {argv[2]}, [](void* of) { static_cast<EventCount*>(of)->notify(); }, &arrivals},
      why);
  if (source == nullptr) {
    std::fprintf(stderr, "%s\n", why.c_str());
    return 1;
  }
  std::printf("listening\n");
  std::fflush(stdout);
  PlannedFile file;
  for (long left = std::atol(argv[3]); left > 0;) {
    const auto seen = arrivals.now();
    if (source->next(file) == PathSource::Next::none_yet) {
      std::fflush(stdout);
      arrivals.wait(seen);
      continue;
    }
    std::printf("%u %llu %s\n", file.reader, static_cast<unsigned long long>(file.sequence),
                file.path.c_str());
    source->settled(file.reader, 1);
    --left;
  }
  std::fflush(stdout);
  char byte;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
  return 0;
}
