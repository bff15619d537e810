// The program that the fault tests harm. It reads one command per line from its standard input,
// executes the command with plain libc calls, and answers with one line. It runs with the library
// preloaded and, for comparison, without the library.
#include "tests/hostile/crash/host.h"

#include <sys/prctl.h>

#include <csignal>
#include <iostream>
#include <sstream>

int main(int argc, char** argv) {
  // This process must not outlive the driver. The driver can start it in another pid namespace, so
  // the driver's pid does not show whether the driver has ended already.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (argc > 1) std::cout << argv[1] << std::endl;
  cube::crash::Commands commands = cube::crash::path_commands();
  commands.merge(cube::crash::fd_commands());
  commands.merge(cube::crash::child_commands());
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream text(line);
    cube::crash::Words words;
    for (std::string word; text >> word;) words.push_back(word);
    const auto command = words.empty() ? commands.end() : commands.find(words[0]);
    std::cout << (command == commands.end() ? "unknown command" : command->second(words))
              << std::endl;
  }
  return 0;
}
