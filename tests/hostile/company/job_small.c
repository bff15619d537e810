// The steps of the company tests' job in threads with small stacks.
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "tests/hostile/company/job.h"

// The calls of a thread whose stack has room for only one or two paths. They name DIR by its path,
// by its last component, and through the link DIR/up.
struct Small {
  const char* dir;
  int number, changes;
};
static void say(const char* what, long result) {
  printf("%s %ld %s\n", what, result, result < 0 ? strerror(errno) : "");
}
static void look_small(const char* dir, const char* name, int number) {
  static char text[PATH_MAX];
  char a[200], b[200];
  struct stat st;
  snprintf(a, sizeof a, "%s/f3", dir);
  snprintf(b, sizeof b, "%s/../%s/up/f5", name, name);
  DIR* listed = NULL;
  switch (number) {
    case 0: say("open", close(open(a, O_RDONLY))); break;
    case 1: say("open up", close(open(b, O_RDONLY))); break;
    case 2:
      say("stat", stat(b, &st));
      say("access", access(b, R_OK));
      say("lstat", lstat(b, &st));
      break;
    case 3:
      snprintf(a, sizeof a, "%s/../%s/up", name, name);
      say("readlink", readlink(a, text, sizeof text));
      break;
    case 4:
      say("realpath", realpath(b, text) != NULL ? (long)strlen(strrchr(text, '/')) : -1);
      break;
    case 5:
      snprintf(a, sizeof a, "%s/../%s/up/", name, name);
      listed = opendir(a);
      long n = 0;
      while (listed != NULL && readdir(listed) != NULL) ++n;
      say("entries", listed != NULL ? n : -1);
      if (listed != NULL) closedir(listed);
      break;
    case 6:
      snprintf(a, sizeof a, "%s/up/none/f", name);
      say("none", open(a, O_RDONLY));
      say("none", stat(a, &st));
      break;
    case 7: say("O_PATH", close(open(b, O_PATH))); break;
    default: break;
  }
}
static void change_small(const char* dir, const char* name, int number) {
  char a[200], b[200];
  snprintf(a, sizeof a, "%s/f19", dir);
  snprintf(b, sizeof b, "%s/../%s/up/new", name, name);
  switch (number) {
    case 0: say("rename", rename(a, b)); break;
    case 1: say("back", rename(b, a)); break;
    case 2:
      say("link", link(a, b));
      say("unlink", unlink(b));
      break;
    case 3:
      say("chmod", chmod(a, 0640));
      say("truncate", truncate(a, 700));
      break;
    case 4:
      say("make", close(open(b, O_CREAT | O_WRONLY, 0600)));
      say("remove", remove(b));
      break;
    case 5:
      say("mkdir", mkdir(b, 0700));
      say("rmdir", rmdir(b));
      break;
    default: break;
  }
}
static void* be_small(void* work) {
  const struct Small* const small = work;
  (small->changes ? change_small : look_small)(small->dir, strrchr(small->dir, '/') + 1,
                                               small->number);
  return NULL;
}
void run_small(char* arguments, int changes) {
  struct Small small = {strsep(&arguments, ":"), 0, changes};
  const size_t stack = strtoul(arguments, NULL, 10);
  for (; small.number < 8; ++small.number) {
    fflush(stdout);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      pthread_attr_t attributes;
      pthread_t thread;
      CHECK(pthread_attr_init(&attributes) == 0 &&
            pthread_attr_setstacksize(&attributes, stack) == 0);
      CHECK(pthread_create(&thread, &attributes, be_small, &small) == 0 &&
            pthread_join(thread, NULL) == 0);
      fflush(stdout);
      _exit(0);
    }
    end_of(child);
  }
}
