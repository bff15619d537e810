// Hashes, checksums and encodings of the S3 protocol. mbedTLS computes SHA-256 and MD5. Thread
// safety: pure functions; a Crc is constant.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace cube::s3 {

// These functions return binary digests.
std::string sha256(std::string_view bytes);
std::string md5(std::string_view bytes);
std::string hmac_sha256(std::string_view key, std::string_view text);

// Computes the MD5 of bytes that are added in parts.
class Md5 {
 public:
  Md5();
  ~Md5();
  Md5(const Md5&) = delete;
  Md5& operator=(const Md5&) = delete;
  void add(std::string_view bytes);
  // Returns the binary digest. Call it only once.
  std::string digest();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string hex(std::string_view bytes);
std::string base64(std::string_view bytes);

// A reflected CRC. It is computed by carry-less multiplication if the processor has this
// instruction, otherwise by tables, eight bytes at a time.
template <typename Word>
class Crc {
 public:
  explicit Crc(Word polynomial);
  Word of(std::string_view bytes) const;

 private:
  // Both functions continue from the state `crc`.
  Word by_tables(Word crc, std::string_view bytes) const;
  Word by_multiplication(Word crc, std::string_view bytes) const;

  std::array<std::array<Word, 256>, 8> tables_{};
  // Factors that fold 128 bits forward, by 128 bits and by 512 bits.
  std::array<std::uint64_t, 2> over_128_{}, over_512_{};
};

// The value of an x-amz-checksum-NAME header for these bytes. `name` is crc32, crc32c, crc64nvme or
// sha256. Empty if the algorithm is unknown.
std::optional<std::string> checksum(std::string_view name, std::string_view bytes);
// The checksum that OSS and COS use.
std::uint64_t crc64ecma(std::string_view bytes);

}  // namespace cube::s3
