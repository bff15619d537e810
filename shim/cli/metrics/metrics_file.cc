#include "shim/cli/metrics/metrics_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "cache/base/error_text.h"
#include "shim/cli/text_file.h"

namespace cube::cli {
std::string write_metrics_file(const std::string& path, std::string_view text) {
  const std::size_t slash = path.rfind('/') + 1;
  // The collector ignores files with such names.
  std::string beside = fmt::format("{}.{}.tmp.XXXXXX", path.substr(0, slash), path.substr(slash));
  const auto why = [&] {
    return fmt::format("cannot write {}: {}", path, base::text_of_error(errno));
  };
  // The collector usually runs as another user, who must be able to read the file.
  constexpr mode_t k_mode = S_IRUSR | S_IWUSR | S_IRGRP | S_IROTH;
  const int fd = mkostemp(beside.data(), O_CLOEXEC);
  if (fd < 0) return why();
  std::string trouble;
  if (fchmod(fd, k_mode) != 0 || !write_whole(fd, text)) trouble = why();
  if (close(fd) != 0 && trouble.empty()) trouble = why();
  if (trouble.empty() && rename(beside.c_str(), path.c_str()) != 0) trouble = why();
  if (!trouble.empty()) unlink(beside.c_str());
  return trouble;
}

}  // namespace cube::cli
