// preload_helper: the program under test. Its commands and what they share; a command that finds a
// fault reports it and ends the process with 1.
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

// The commands, by what they do: child_commands() start children and other programs,
// thread_commands() use many threads, and hostile_commands() unwind frames of the library or
// interrupt it.
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

// Checks that the bytes of the open file, from here to its end, are those of the file with that
// number.
void check_fd(int fd, int number, std::size_t from = 0);
// Opens, checks and closes a file, whose number follows from its name.
void check_file(const std::string& path);
std::string file_in(const std::string& dir, int n);
std::string random_file(const std::string& dir, int files, std::mt19937& random);
// end HOW FILE TIMES: reads FILE, then ends in the way that HOW names
int do_end(const Arguments& a);
