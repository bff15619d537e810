#include "tests/differential/reader.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <vector>

#include "tests/differential/player.h"

namespace cube::differ {

int run_reader(int fd, unsigned long length) {
  std::vector<char> bytes(length + 1);
  struct ::stat st {};
  errno = 0;
  const long n = read(fd, bytes.data(), length);
  const int error = errno;
  const long at = lseek(fd, 0, SEEK_CUR);
  const int known = fstat(fd, &st);
  const std::string text =
      fmt::format("read {} {} {:016x} at {} size {}", n, n < 0 ? error_name(error) : "",
                  n > 0 ? hash_of(bytes.data(), static_cast<std::size_t>(n)) : 0, at,
                  known == 0 ? st.st_size : -1);
  return write(STDOUT_FILENO, text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0
                                                                                             : 1;
}

}  // namespace cube::differ
