#include "shim/cli/text_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>

#include "cache/base/error_text.h"

namespace cube::cli {

bool write_whole(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

std::string write_text_file(const std::string& path, std::string_view text) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  std::string why;
  const auto note = [&] {
    why = fmt::format("cannot write {}: {}", path, base::text_of_error(errno));
  };
  if (fd < 0 || !write_whole(fd, text)) note();
  if (fd >= 0 && close(fd) != 0 && why.empty()) note();
  return why;
}

}  // namespace cube::cli
