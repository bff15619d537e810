// Shows everything that a program can see of a file that may have changed: its bytes, its stat and
// the offset.
#pragma once

#include <string>

#include "tests/support/parity_case.h"

namespace cube::parity {

// Shows an open file without changing its offset.
inline void show(Case& t, const char* label, int fd) {
  char got[64] = {};
  struct stat st {};
  CALL(pread(fd, got, sizeof got, 0));
  t.bytes(label, got, sizeof got);
  CALL(fstat(fd, &st));
  t.line(std::string(label) + " size " + std::to_string(st.st_size) + " links " +
         std::to_string(st.st_nlink) + " mode " + std::to_string(st.st_mode));
  CALL(lseek(fd, 0, SEEK_CUR));
}
// Opens the file of that name again and shows it.
inline void show_path(Case& t, const char* path) {
  const int fd = CALL(open(path, O_RDONLY));
  if (fd < 0) return;
  show(t, "by path", fd);
  struct stat st {};
  CALL(fstat(fd, &st));
  t.stat("fstat", st, path);
  CALL(close(fd));
  CALL(stat(path, &st));
  t.stat("stat", st, path);
}

}  // namespace cube::parity
