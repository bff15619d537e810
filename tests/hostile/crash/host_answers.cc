// The form of the answers to the host's commands, and the kinds of read that the commands use.
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "tests/hostile/crash/host.h"

namespace cube::crash {
namespace {

// The same CRC as zlib's, so that the driver can compare the values.
std::uint32_t crc32(const std::string& bytes) {
  static const auto table = [] {
    std::array<std::uint32_t, 256> t{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      t[i] = i;
      for (int k = 0; k < 8; ++k) t[i] = (t[i] >> 1) ^ (0xedb88320U & (0U - (t[i] & 1U)));
    }
    return t;
  }();
  std::uint32_t crc = ~0U;
  for (const char c : bytes) crc = table[(crc ^ static_cast<unsigned char>(c)) & 0xff] ^ (crc >> 8);
  return ~crc;
}

}  // namespace

std::string failed(const char* step) {
  return std::string("error ") + strerrorname_np(errno) + " " + step;
}
std::string seen(long size, const std::string& bytes) {
  return "ok " + std::to_string(size) + " " + std::to_string(bytes.size()) + " " +
         std::to_string(crc32(bytes));
}
bool read_all(int fd, const std::string& how, std::string& bytes) {
  std::string buffer(how == "small" ? 1000 : 256 << 10, '\0');
  while (true) {
    ssize_t n = 0;
    if (how == "pread") {
      n = pread(fd, buffer.data(), buffer.size(), static_cast<off_t>(bytes.size()));
    } else if (how == "readv") {
      const iovec parts[2] = {{buffer.data(), 100}, {buffer.data() + 100, buffer.size() - 100}};
      n = readv(fd, parts, 2);
    } else {
      n = read(fd, buffer.data(), buffer.size());
    }
    if (n < 0) return false;
    if (n == 0) return true;
    bytes.append(buffer, 0, static_cast<std::size_t>(n));
  }
}

}  // namespace cube::crash
