// A directory for one test, and a tmpfs of a given size (root only). Their destructors remove them.
#pragma once

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

namespace cube::tests {

class TempDir {
 public:
  TempDir() {
    char name[] = "/tmp/cubeshim-test-XXXXXX";
    path_ = mkdtemp(name) != nullptr ? name : "";
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() {
    if (getpid() != owner_ || path_.empty()) return;
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }
  std::string write(std::string_view name, std::string_view content) const {
    const std::string path = *this / name;
    write_file(path, content);
    return path;
  }
  // Writes in place, so that the inode stays the same.
  static bool write_file(const std::string& path, std::string_view content) {
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) return false;
    const bool whole =
        ::write(fd, content.data(), content.size()) == static_cast<ssize_t>(content.size());
    close(fd);
    return whole;
  }

 private:
  std::string path_;
  pid_t owner_ = getpid();
};

class TmpfsMount {
 public:
  explicit TmpfsMount(const char* size) {
    const std::string options = std::string("size=") + size;
    mounted_ = mount("cubeshim-test", dir_.path().c_str(), "tmpfs", 0, options.c_str()) == 0;
  }
  ~TmpfsMount() {
    if (mounted_ && getpid() == owner_) umount2(dir_.path().c_str(), MNT_DETACH);
  }
  bool is_mounted() const { return mounted_; }
  const std::string& path() const { return dir_.path(); }
  // Fills all the room that is left.
  void fill() const {
    const int fd = open((dir_ / "filler").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    off_t at = 0;
    for (off_t n = 64 << 20; n >= 4096; n /= 2) {
      while (fallocate(fd, 0, at, n) == 0) at += n;
    }
    close(fd);
  }

 private:
  TempDir dir_;
  bool mounted_ = false;
  pid_t owner_ = getpid();
};

}  // namespace cube::tests
