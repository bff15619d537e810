// The commands of preload_helper, the program under test, and the functions that they share. A
// command that finds a fault reports it and exits with 1.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

using Arguments = std::vector<std::string>;
using Commands = std::map<std::string, int (*)(const Arguments&)>;

// The commands by topic. child_commands() start children and other programs, thread_commands() use
// many threads, and hostile_commands() unwind frames of the library or interrupt it.
Commands child_commands();
Commands thread_commands();
Commands hostile_commands();

#define CHECK(condition)                                                              \
  do {                                                                                \
    if (!(condition)) {                                                               \
      std::fprintf(stderr, "helper: %s:%d: %s: %s\n", __FILE__, __LINE__, #condition, \
                   strerror(errno));                                                  \
      _exit(1);                                                                       \
    }                                                                                 \
  } while (false)

// Checks that the bytes of the open file, from its offset to its end, are the bytes of the file
// with that number.
void check_fd(int fd, int number, std::size_t from = 0);
// Opens, checks and closes a file, whose number follows from its name.
void check_file(const std::string& path);
std::string file_in(const std::string& dir, int n);
std::string random_file(const std::string& dir, int files, std::mt19937& random);
// end HOW FILE TIMES: reads FILE, then ends in the way that HOW names
int do_end(const Arguments& a);
