// The path of an open fd in /proc. Thread safety: pure; async-signal-safe, no allocation.
#pragma once

#include <charconv>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace cube::base {

class ProcFdName {
 public:
  // `process`: the fd table of the first thread, which /proc/self shows. `thread`: the fd table of
  // the calling thread, which may have its own table. `info_of_thread`: the same table as `thread`,
  // but the file in which /proc describes the fd.
  enum class Table : std::uint8_t { process, thread, info_of_thread };

  // Uses std::to_chars, which takes a tenth of fmt's time, because each miss makes such a path.
  explicit ProcFdName(int fd, Table table = Table::process) {
    const std::string_view directory = table == Table::process  ? "/proc/self/fd/"
                                       : table == Table::thread ? "/proc/thread-self/fd/"
                                                                : "/proc/thread-self/fdinfo/";
    std::memcpy(text_, directory.data(), directory.size());
    *std::to_chars(text_ + directory.size(), text_ + sizeof text_ - 1, fd).ptr = '\0';
  }
  const char* c_str() const { return text_; }

 private:
  char text_[40];
};

}  // namespace cube::base
