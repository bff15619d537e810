// The common part of the fuzz targets: a directory, and a check that ends the process, so that
// libFuzzer keeps the input.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv);

#define FUZZ_CHECK(condition, ...)                                                        \
  do {                                                                                    \
    if (!(condition)) {                                                                   \
      std::fprintf(stderr, "%s:%d: does not hold: %s: ", __FILE__, __LINE__, #condition); \
      std::fprintf(stderr, "" __VA_ARGS__);                                               \
      std::fputc('\n', stderr);                                                           \
      std::abort();                                                                       \
    }                                                                                     \
  } while (false)

namespace cube::fuzz {

// Returns a directory on a tmpfs, as regions need. run.py provides and removes it; a target that is
// run by hand makes its own directory.
inline const std::string& directory() {
  static const auto* const path = [] {
    if (const char* const given = std::getenv("FUZZ_DIR"); given != nullptr)
      return new std::string(given);
    char name[] = "/dev/shm/cubeshim-fuzz-XXXXXX";
    auto* const made = new std::string(mkdtemp(name));
    std::atexit([] { std::filesystem::remove_all(directory()); });
    return made;
  }();
  return *path;
}

inline void write_file(const std::string& path, std::string_view content) {
  std::ofstream(path, std::ios::binary)
      .write(content.data(), static_cast<std::streamsize>(content.size()));
}

// Returns the bytes of the input one after another, and zeros past its end.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : at_(data), end_(data + size) {}
  std::size_t left() const { return static_cast<std::size_t>(end_ - at_); }
  std::uint8_t byte() { return at_ == end_ ? std::uint8_t{0} : *at_++; }
  template <typename T>
  T number() {
    T value{};
    for (std::size_t i = 0; i < sizeof value; ++i)
      value = static_cast<T>(value | static_cast<T>(T{byte()} << (8 * i)));
    return value;
  }
  std::string_view rest() { return text(left()); }
  std::string_view text(std::size_t most) {
    const std::string_view taken(reinterpret_cast<const char*>(at_), most < left() ? most : left());
    at_ += taken.size();
    return taken;
  }

 private:
  const std::uint8_t *at_, *end_;
};

}  // namespace cube::fuzz
