#include "cache/bucket/copy_stat.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <iterator>
#include <string_view>

#include "cache/base/process/proc_fd_name.h"
#include "cache/record/record.h"

namespace cube::cache {
namespace {

namespace sys = base::sys;

constexpr std::string_view k_mark = "cubeshim:";
constexpr const char* k_attribute = "user.cubeshim.object";
constexpr std::size_t k_most = 160;

bool read_number(std::string_view& text, std::uint64_t& value) {
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (read.ec != std::errc()) return false;
  text.remove_prefix(static_cast<std::size_t>(read.ptr - text.data()));
  if (!text.empty()) text.remove_prefix(1);  // the separator after the number
  return true;
}

bool read_name(std::string_view text, FileStat& stat) {
  if (!text.starts_with(k_mark)) return false;
  text.remove_prefix(k_mark.size());
  std::uint64_t inode = 0, device = 0, seconds = 0, nanoseconds = 0;
  if (!read_number(text, inode) || !read_number(text, device) || !read_number(text, seconds) ||
      !read_number(text, nanoseconds))
    return false;
  constexpr std::uint64_t k_block = 512;
  stat.inode = inode;
  stat.device_major = 0;
  stat.device_minor = static_cast<std::uint32_t>(device);
  stat.links = 1;
  stat.blocks = (stat.size + k_block - 1) / k_block;
  stat.block_size = static_cast<std::uint32_t>(k_page);
  stat.accessed = stat.modified;
  stat.changed = {static_cast<std::int64_t>(seconds), static_cast<std::uint32_t>(nanoseconds), 0};
  stat.mask = STATX_BASIC_STATS;
  return true;
}

bool read_name_of(const char* path, FileStat& stat) {
  constexpr std::string_view k_memfd = "/memfd:";
  char text[k_most];
  long length = sys::readlink(path, text, sizeof text);
  // Accepts the name only of a memfd, because an ordinary file may have the same name.
  const std::string_view link(text, length > 0 ? static_cast<std::size_t>(length) : 0);
  if (link.starts_with(k_memfd) && read_name(link.substr(k_memfd.size()), stat)) return true;
  length =
      sys::raw(SYS_getxattr, sys::arg(path), sys::arg(k_attribute), sys::arg(text), sizeof text);
  return length > 0 && read_name({text, static_cast<std::size_t>(length)}, stat);
}

// No directory has an entry for a copy, so its link count is 0.
bool may_be_copy(const base::Result<FileStat>& found) {
  return found && found->links == 0 && found->is_regular();
}

}  // namespace

CopyName::CopyName(const FileStat& stat) {
  const std::uint64_t numbers[] = {stat.inode, stat.device_minor,
                                   static_cast<std::uint64_t>(stat.changed.seconds),
                                   stat.changed.nanoseconds};
  char* at = std::copy(k_mark.begin(), k_mark.end(), text_);
  for (const std::uint64_t number : numbers) {
    at = std::to_chars(at, std::end(text_) - 2, number, 16).ptr;
    *at++ = ':';
  }
  *at = '\0';
}

void CopyName::write_to(int fd) const {
  sys::raw(SYS_fsetxattr, fd, sys::arg(k_attribute), sys::arg(text_),
           static_cast<long>(std::strlen(text_)), 0);
}

bool stat_of_copy(int fd, FileStat& stat) {
  const auto found = stat_fd(fd, AT_STATX_DONT_SYNC);
  if (!may_be_copy(found)) return false;
  stat = *found;
  const base::ProcFdName name(fd, base::ProcFdName::Table::thread);
  return read_name_of(name.c_str(), stat);
}

bool stat_of_copy(const char* path, FileStat& stat) {
  const auto begins_with = [&](std::string_view text) {
    return std::mismatch(text.begin(), text.end(), path).first == text.end();
  };
  if (!begins_with("/proc/") && !begins_with("/dev/fd/")) return false;
  const auto found = stat_path(AT_FDCWD, path, AT_STATX_DONT_SYNC);
  if (!may_be_copy(found)) return false;
  stat = *found;
  return read_name_of(path, stat);
}

}  // namespace cube::cache
