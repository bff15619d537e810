#include "prefetch/object/s3/digest.h"

#include <mbedtls/md5.h>
#include <mbedtls/sha256.h>

#include <cstring>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#define CUBESHIM_MULTIPLIES __attribute__((target("pclmul")))
#endif

namespace cube::s3 {
namespace {

const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}
unsigned char* bytes_of(std::string& text) { return reinterpret_cast<unsigned char*>(text.data()); }

constexpr std::size_t k_sha256_bytes = 32, k_md5_bytes = 16, k_sha256_block = 64;

template <typename Word>
std::string in_network_order(Word value) {
  std::string bytes;
  for (int shift = static_cast<int>(sizeof(Word)) * 8 - 8; shift >= 0; shift -= 8)
    bytes += static_cast<char>(value >> shift & 0xff);
  return bytes;
}

// Returns x to the power of `n` modulo the polynomial. The highest coefficient is in the lowest of
// the 64 bits.
template <typename Word>
std::uint64_t power_of_x(Word polynomial, unsigned n) {
  constexpr unsigned k_bits = sizeof(Word) * 8;
  Word value = Word{1} << (k_bits - 1);
  for (; n != 0; --n) value = static_cast<Word>((value >> 1) ^ ((value & 1) != 0 ? polynomial : 0));
  return std::uint64_t{value} << (64 - k_bits);
}

}  // namespace

std::string sha256(std::string_view bytes) {
  std::string digest(k_sha256_bytes, '\0');
  mbedtls_sha256_ret(bytes_of(bytes), bytes.size(), bytes_of(digest), /*is224=*/0);
  return digest;
}

std::string md5(std::string_view bytes) {
  std::string digest(k_md5_bytes, '\0');
  mbedtls_md5_ret(bytes_of(bytes), bytes.size(), bytes_of(digest));
  return digest;
}

struct Md5::State {
  mbedtls_md5_context context;
};

Md5::Md5() : state_(std::make_unique<State>()) {
  mbedtls_md5_init(&state_->context);
  mbedtls_md5_starts_ret(&state_->context);
}

Md5::~Md5() { mbedtls_md5_free(&state_->context); }

void Md5::add(std::string_view bytes) {
  mbedtls_md5_update_ret(&state_->context, bytes_of(bytes), bytes.size());
}

std::string Md5::digest() {
  std::string digest(k_md5_bytes, '\0');
  mbedtls_md5_finish_ret(&state_->context, bytes_of(digest));
  return digest;
}

std::string hmac_sha256(std::string_view key, std::string_view text) {
  std::string inner = key.size() > k_sha256_block ? sha256(key) : std::string(key);
  inner.resize(k_sha256_block, '\0');
  std::string outer = inner;
  for (auto& c : inner) c = static_cast<char>(c ^ 0x36);
  for (auto& c : outer) c = static_cast<char>(c ^ 0x5c);
  return sha256(outer + sha256(inner.append(text)));
}

std::string hex(std::string_view bytes) {
  constexpr char k_digits[] = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const char c : bytes) {
    text += k_digits[static_cast<unsigned char>(c) >> 4];
    text += k_digits[static_cast<unsigned char>(c) & 15];
  }
  return text;
}

std::string base64(std::string_view bytes) {
  constexpr char k_digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    std::uint32_t three = 0;
    for (std::size_t i = 0; i < 3; ++i)
      three = three << 8 | (at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0);
    for (std::size_t i = 0; i < 4; ++i)
      text += at + i > bytes.size() ? '=' : k_digits[three >> (18 - 6 * i) & 63];
  }
  return text;
}

template <typename Word>
Crc<Word>::Crc(Word polynomial) {
  for (unsigned byte = 0; byte < 256; ++byte) {
    Word value = byte;
    for (int bit = 0; bit < 8; ++bit)
      value = static_cast<Word>((value >> 1) ^ ((value & 1) != 0 ? polynomial : 0));
    tables_[0][byte] = value;
  }
  for (std::size_t table = 1; table < tables_.size(); ++table) {
    for (unsigned byte = 0; byte < 256; ++byte) {
      const Word before = tables_[table - 1][byte];
      tables_[table][byte] = static_cast<Word>(before >> 8) ^ tables_[0][before & 0xff];
    }
  }
  // The -1 is needed because the product of two reflected 64-bit factors is one bit too low.
  for (auto& [factors, bits] : {std::pair(&over_128_, 128U), std::pair(&over_512_, 512U)})
    *factors = {power_of_x(polynomial, bits + 64 - 1), power_of_x(polynomial, bits - 1)};
}

template <typename Word>
Word Crc<Word>::by_tables(Word crc, std::string_view bytes) const {
  while (bytes.size() >= 8) {
    std::uint64_t eight;
    std::memcpy(&eight, bytes.data(), 8);
    eight ^= crc;
    crc = 0;
    for (std::size_t i = 0; i < 8; ++i) crc ^= tables_[7 - i][eight >> (8 * i) & 0xff];
    bytes.remove_prefix(8);
  }
  for (const char c : bytes)
    crc = static_cast<Word>(crc >> 8) ^ tables_[0][(crc ^ static_cast<unsigned char>(c)) & 0xff];
  return crc;
}

#if defined(__x86_64__)
namespace {

CUBESHIM_MULTIPLIES inline __m128i load_128(const char* at) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
}

// Multiplies `from` by the factors and adds the result to `to`.
CUBESHIM_MULTIPLIES inline __m128i fold(__m128i from, __m128i factors, __m128i to) {
  const __m128i low = _mm_clmulepi64_si128(from, factors, 0x00);
  return _mm_xor_si128(_mm_xor_si128(low, _mm_clmulepi64_si128(from, factors, 0x11)), to);
}

}  // namespace

// Folds the bytes into 16 bytes with the same remainder.
template <typename Word>
CUBESHIM_MULTIPLIES Word Crc<Word>::by_multiplication(Word crc, std::string_view bytes) const {
  constexpr std::size_t k_lane = 16, k_lanes = 4;
  const __m128i far = load_128(reinterpret_cast<const char*>(over_512_.data()));
  const __m128i near = load_128(reinterpret_cast<const char*>(over_128_.data()));
  __m128i lanes[k_lanes];
  for (std::size_t i = 0; i < k_lanes; ++i) lanes[i] = load_128(bytes.data() + i * k_lane);
  lanes[0] = _mm_xor_si128(lanes[0], _mm_set_epi64x(0, static_cast<long long>(crc)));
  bytes.remove_prefix(k_lanes * k_lane);
  for (; bytes.size() >= k_lanes * k_lane; bytes.remove_prefix(k_lanes * k_lane)) {
    for (std::size_t i = 0; i < k_lanes; ++i)
      lanes[i] = fold(lanes[i], far, load_128(bytes.data() + i * k_lane));
  }
  for (std::size_t i = 1; i < k_lanes; ++i) lanes[i] = fold(lanes[i - 1], near, lanes[i]);
  char folded[k_lane];
  _mm_storeu_si128(reinterpret_cast<__m128i*>(folded), lanes[k_lanes - 1]);
  return by_tables(by_tables(0, {folded, k_lane}), bytes);
}
#endif

template <typename Word>
Word Crc<Word>::of(std::string_view bytes) const {
  constexpr std::size_t k_worthwhile = 128;
#if defined(__x86_64__)
  if (bytes.size() >= k_worthwhile && __builtin_cpu_supports("pclmul"))
    return ~by_multiplication(~Word{0}, bytes);
#endif
  return ~by_tables(~Word{0}, bytes);
}

template class Crc<std::uint32_t>;
template class Crc<std::uint64_t>;

std::optional<std::string> checksum(std::string_view name, std::string_view bytes) {
  static const Crc<std::uint32_t> crc32(0xedb88320U), crc32c(0x82f63b78U);
  static const Crc<std::uint64_t> crc64nvme(0x9a6c9329ac4bc9b5ULL);
  if (name == "crc32") return base64(in_network_order(crc32.of(bytes)));
  if (name == "crc32c") return base64(in_network_order(crc32c.of(bytes)));
  if (name == "crc64nvme") return base64(in_network_order(crc64nvme.of(bytes)));
  if (name == "sha256") return base64(sha256(bytes));
  return std::nullopt;
}

std::uint64_t crc64ecma(std::string_view bytes) {
  static const Crc<std::uint64_t> crc(0xc96c5795d7870f42ULL);
  return crc.of(bytes);
}

}  // namespace cube::s3
