// A program that reads on command, with or without the library. Each line of input is a command,
// and each answer is one line. It begins with the times before the first call and after the last
// call.
//
//   mutator_reader ROOT
#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>

#include "tests/preload/freshness/mutator/words.h"

namespace cube::mutator {
namespace {

constexpr std::size_t k_most_bytes = 8 << 20;

std::string error_text() { return std::string("E ") + strerrorname_np(errno); }

std::string stat_text(const struct stat& st) {
  char text[200];
  std::snprintf(text, sizeof text, "A %lu %lu %o %lu %ld %ld", st.st_ino, st.st_size, st.st_mode,
                st.st_nlink, st.st_mtim.tv_sec * 1'000'000'000L + st.st_mtim.tv_nsec,
                st.st_ctim.tv_sec * 1'000'000'000L + st.st_ctim.tv_nsec);
  return text;
}

class Reader {
 public:
  explicit Reader(std::string root) : root_(std::move(root)) {}

  void answer_all() {
    for (std::string line; std::getline(std::cin, line);) {
      words_.clear();
      for (std::size_t at = 0; at < line.size();) {
        const std::size_t end = std::min(line.find(' ', at), line.size());
        words_.push_back(line.substr(at, end - at));
        at = end + 1;
      }
      begin_ = now_ns();
      end_ = 0;
      const std::string answer = act();
      if (end_ == 0) end_ = now_ns();
      std::cout << begin_ << ' ' << end_ << ' ' << answer << std::endl;
    }
  }

 private:
  std::string path(std::size_t i) const { return root_ + "/" + words_.at(i); }
  std::size_t number(std::size_t i) const { return std::stoul(words_.at(i)); }

  std::string act() {
    const std::string& what = words_.at(0);
    if (what == "read") return read_whole();
    if (what == "pread") return read_part();
    if (what == "stream") return read_stream();
    if (what == "map") return map_whole();
    if (what == "stat" || what == "lstat") return stat_path(what == "lstat");
    if (what == "access") return access(path(1).c_str(), R_OK) == 0 ? "Y" : error_text();
    if (what == "readlink") return read_link();
    if (what == "realpath") return real_path();
    if (what == "list") return list();
    if (what == "scan") return scan();
    if (what == "keep") return keep();
    if (what == "kept-read") return kept_read();
    if (what == "kept-stat") return kept_stat();
    if (what == "drop") return drop();
    return "unknown command";
  }

  // Marks the end of the answer's last call: decoding does not count.
  void ends_here() { end_ = now_ns(); }

  std::string data_text(std::size_t size, std::uint64_t first_word, const struct stat* st) {
    std::string text = "D " + std::to_string(size);
    for (const Run& run : decode(buffer_.get(), size, first_word)) {
      text += ' ' + std::to_string(run.tag) + ':' + std::to_string(run.words);
    }
    if (st != nullptr) text += ' ' + stat_text(*st);
    return text;
  }

  // PATH CHUNK: open, fstat, read to the end, close.
  std::string read_whole() {
    const int fd = open(path(1).c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return error_text();
    struct stat st {};
    fstat(fd, &st);
    std::size_t size = 0;
    ssize_t n = 1;
    while (n > 0 && size < k_most_bytes) {
      n = read(fd, buffer_.get() + size, std::min(number(2), k_most_bytes - size));
      if (n > 0) size += static_cast<std::size_t>(n);
    }
    const std::string error = n < 0 ? error_text() : "";
    close(fd);
    ends_here();
    return n < 0 ? error : data_text(size, 0, &st);
  }

  // PATH FIRST_WORD WORDS
  std::string read_part() {
    const int fd = open(path(1).c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return error_text();
    const ssize_t n =
        pread(fd, buffer_.get(), number(3) * k_word, static_cast<off_t>(number(2) * k_word));
    const std::string error = n < 0 ? error_text() : "";
    close(fd);
    ends_here();
    return n < 0 ? error : data_text(static_cast<std::size_t>(n), number(2), nullptr);
  }

  std::string read_stream() {
    FILE* const file = std::fopen(path(1).c_str(), "re");
    if (file == nullptr) return error_text();
    errno = 0;
    const std::size_t n = std::fread(buffer_.get(), 1, k_most_bytes, file);
    const std::string error = std::ferror(file) != 0 ? error_text() : "";
    std::fclose(file);
    ends_here();
    return error.empty() ? data_text(n, 0, nullptr) : error;
  }

  std::string map_whole() {
    const int fd = open(path(1).c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return error_text();
    struct stat st {};
    fstat(fd, &st);
    const std::size_t size = std::min(static_cast<std::size_t>(st.st_size), k_most_bytes);
    std::size_t copied = 0;
    if (S_ISREG(st.st_mode) && size != 0) {
      void* const map = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
      if (map == MAP_FAILED) {
        const std::string error = error_text();
        close(fd);
        return error;
      }
      // The kernel makes the copy. So a page past the end of a file that has shrunk ends only the
      // copy, and raises no signal in this process.
      const iovec to{buffer_.get(), size}, from{map, size};
      const ssize_t n = process_vm_readv(getpid(), &to, 1, &from, 1, 0);
      if (n > 0) copied = static_cast<std::size_t>(n);
      munmap(map, size);
    }
    close(fd);
    ends_here();
    if (!S_ISREG(st.st_mode)) return "E EISDIR";
    return data_text(copied, 0, nullptr);
  }

  std::string stat_path(bool no_follow) {
    struct stat st {};
    const int failed = no_follow ? lstat(path(1).c_str(), &st) : stat(path(1).c_str(), &st);
    return failed != 0 ? error_text() : stat_text(st);
  }

  std::string read_link() {
    char target[PATH_MAX];
    const ssize_t n = readlink(path(1).c_str(), target, sizeof target);
    return n < 0 ? error_text() : "T " + std::string(target, static_cast<std::size_t>(n));
  }

  std::string real_path() {
    char found[PATH_MAX];
    if (realpath(path(1).c_str(), found) == nullptr) return error_text();
    const std::string real = found;
    return "T " + (real.starts_with(root_ + "/") ? real.substr(root_.size() + 1)
                   : real == root_               ? "."
                                                 : "outside:" + real);
  }

  std::string names_of(const std::string& directory, std::vector<std::string>& names) {
    DIR* const stream = opendir(directory.c_str());
    if (stream == nullptr) return error_text();
    errno = 0;
    while (const dirent* const entry = readdir(stream)) {
      const std::string name = entry->d_name;
      if (name != "." && name != ".." && name != ".lagfs") names.push_back(name);
    }
    const std::string error = errno != 0 ? error_text() : "";
    closedir(stream);
    std::sort(names.begin(), names.end());
    return error;
  }

  std::string list() {
    std::vector<std::string> names;
    const std::string error = names_of(path(1), names);
    ends_here();
    if (!error.empty()) return error;
    std::string text = "L";
    for (const auto& name : names) text += ' ' + name;
    return text;
  }

  // Answers with the names and the lstat of each name.
  std::string scan() {
    std::vector<std::string> names;
    const std::string error = names_of(path(1), names);
    if (!error.empty()) return error;
    std::string text = "L";
    for (const auto& name : names) text += ' ' + name;
    for (const auto& name : names) {
      struct stat st {};
      const bool is_there = lstat((path(1) + "/" + name).c_str(), &st) == 0;
      text += " ; " + (is_there ? stat_text(st) : error_text());
    }
    ends_here();
    return text;
  }

  // SLOT PATH: opens the file, keeps it open, and answers with its stat.
  std::string keep() {
    const int fd = open(path(2).c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return error_text();
    kept_[number(1)] = fd;
    struct stat st {};
    fstat(fd, &st);
    return stat_text(st);
  }

  // SLOT FIRST_WORD WORDS
  std::string kept_read() {
    const ssize_t n = pread(kept_.at(number(1)), buffer_.get(), number(3) * k_word,
                            static_cast<off_t>(number(2) * k_word));
    if (n < 0) return error_text();
    ends_here();
    return data_text(static_cast<std::size_t>(n), number(2), nullptr);
  }

  std::string kept_stat() {
    struct stat st {};
    return fstat(kept_.at(number(1)), &st) != 0 ? error_text() : stat_text(st);
  }

  std::string drop() {
    close(kept_.at(number(1)));
    kept_.erase(number(1));
    return "Y";
  }

  std::string root_;
  std::vector<std::string> words_;
  std::int64_t begin_ = 0, end_ = 0;
  std::map<std::size_t, int> kept_;
  std::unique_ptr<char[]> buffer_ = std::make_unique<char[]>(k_most_bytes);
};

}  // namespace
}  // namespace cube::mutator

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  cube::mutator::Reader(argv[1]).answer_all();
  return 0;
}
