#include "shim/cli/profile/raw_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <string_view>

#include "cache/base/error_text.h"
#include "cache/base/unique_fd.h"

namespace cube::cli {
namespace {

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

bool read_raw(const std::string& path, std::vector<RawFile>& files) {
  const File in(std::fopen(path.c_str(), "rbe"), &std::fclose);
  if (in == nullptr) return false;
  std::string text;
  char part[1 << 16];
  while (const std::size_t n = std::fread(part, 1, sizeof part, in.get())) text.append(part, n);
  if (std::ferror(in.get()) != 0) return false;
  files.push_back(parse_raw(text));
  return true;
}

// Checks the content, because the directory belongs to the user, whose files may have such names.
bool is_raw_file(const std::string& path) {
  const auto fd = base::open_fd(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  struct stat st {};
  char head[shim::profile::k_raw_head.size()];
  return fd && fstat(fd->get(), &st) == 0 && S_ISREG(st.st_mode) &&
         read(fd->get(), head, sizeof head) == static_cast<ssize_t>(sizeof head) &&
         std::string_view(head, sizeof head) == shim::profile::k_raw_head;
}

}  // namespace

std::vector<std::string> raw_files_in(const std::string& directory) {
  std::vector<std::string> files;
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(opendir(directory.c_str()), &closedir);
  while (const struct dirent* const entry = stream != nullptr ? readdir(stream.get()) : nullptr) {
    std::string path = directory + "/" + entry->d_name;
    if (std::string_view(entry->d_name).starts_with(k_raw_name) && is_raw_file(path))
      files.push_back(std::move(path));
  }
  return files;
}

std::string read_raw_files(const std::vector<std::string>& paths, std::vector<RawFile>& files) {
  for (const auto& path : paths) {
    if (!read_raw(path, files))
      return fmt::format("cannot read {}: {}", path, base::text_of_error(errno));
  }
  return "";
}

}  // namespace cube::cli
