// A program under the library that does as it is told: one command a line, one line of answer.
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>

#include "tests/preload/freshness/events.h"

int main() {
  using namespace cube::freshness;
  int fd = -1;
  for (std::string command, what, data; std::cin >> command;) {
    std::string answer = "done";
    if (command == "job") {
      answer = getenv("CUBESHIM_JOB");
    } else if (command == "see") {
      std::cin >> what;
      answer = see_path(what);
    } else if (command == "open") {
      std::cin >> what;
      if (fd >= 0) close(fd);
      fd = open(what.c_str(), O_RDONLY | O_CLOEXEC);
      answer = see_fd(fd);
    } else if (command == "see-open") {
      answer = see_fd(fd);
    } else if (command == "happen") {
      std::cin >> what >> data;
      event_named(what).happen(data);
    } else {
      answer = "unknown command";
    }
    std::cout << answer << std::endl;
  }
  return 0;
}
