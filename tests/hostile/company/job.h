// Shared by the sources of the company tests' job.
#pragma once

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define CHECK(condition)                                                                           \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      char text_[200];                                                                             \
      const int n_ = snprintf(text_, sizeof text_, "job: line %d: %s: %s\n", __LINE__, #condition, \
                              strerror(errno));                                                    \
      (void)!write(2, text_, (size_t)n_);                                                          \
      _exit(1);                                                                                    \
    }                                                                                              \
  } while (0)

// Waits for a child, which must have ended with 0.
void end_of(pid_t child);
// The steps small:DIR:STACK and change:DIR:STACK.
void run_small(char* arguments, int changes);
