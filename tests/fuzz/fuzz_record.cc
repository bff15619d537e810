// Hostile bytes as a record. The checks must never read beyond the existing bytes, must refuse all
// records whose checksums do not fit, and must accept everything that write_record made. Input: a
// byte that chooses the case, then the bytes of a record, or the values to write.
#include <cstring>
#include <memory>

#include "cache/base/hash.h"
#include "cache/record/record.h"
#include "cache/record/record_hash.h"
#include "tests/fuzz/fuzz.h"

namespace cube::cache {
namespace {

// The bytes are a heap block of exactly that size, so that AddressSanitizer detects each access
// beyond them.
struct Bytes {
  explicit Bytes(std::size_t n) : size(n), data(new(std::align_val_t{64}) std::byte[n]) {}
  ~Bytes() { operator delete[](data, std::align_val_t{64}); }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  Record& record() const { return *reinterpret_cast<Record*>(data); }
  std::size_t size;
  std::byte* data;
};

// Written from doc/FORMAT.md, independently of the code under test.
std::uint64_t expected_header_hash(const std::byte* record, std::uint32_t path_length) {
  std::uint64_t words[4];
  words[0] = base::hash_bytes(record, 32);
  std::memcpy(&words[1], record + 48, 8);
  words[2] = base::hash_bytes(record + 64, 192);
  words[3] = base::hash_bytes(record + 256, path_length);
  return base::hash_bytes(words, sizeof words);
}

void check_accepted(const Bytes& bytes) {
  const Record& record = bytes.record();
  FUZZ_CHECK(
      record.record_size <= bytes.size && 256ULL + record.path_length + 1 <= record.data_offset,
      "sizes");
  FUZZ_CHECK(record.data_offset + record.data_size <= record.record_size, "data");
  FUZZ_CHECK(record.header_hash == expected_header_hash(bytes.data, record.path_length),
             "header hash");
  const bool fits =
      base::hash_bytes(bytes.data + record.data_offset, record.data_size) == record.data_hash;
  FUZZ_CHECK(data_is_sound(record) == fits, "data hash");
}

void try_bytes(std::string_view text, bool mend) {
  Bytes bytes(text.size());
  std::memcpy(bytes.data, text.data(), text.size());
  if (mend && bytes.size >= sizeof(Record)) {
    // A forger would set arbitrary fields and compute the checksum that fits them.
    Record& record = bytes.record();
    record.magic = Record::k_magic;
    record.version = Record::k_version;
    if (record.path_length < bytes.size - sizeof(Record)) {
      record.header_hash = expected_header_hash(bytes.data, record.path_length);
    }
  }
  if (bytes.size < sizeof(Record)) {
    // These bytes are too short to be examined at all.
    alignas(Record) static std::byte whole[sizeof(Record)]{};
    std::memcpy(whole, text.data(), text.size());
    FUZZ_CHECK(!header_is_sound(*reinterpret_cast<Record*>(whole), bytes.size), "too short");
  } else if (header_is_sound(bytes.record(), bytes.size)) {
    check_accepted(bytes);
  }
}

bool is_mark_or_padding(const Record& record, std::size_t at) {
  if (at >= offsetof(Record, stale) && at < offsetof(Record, data_hash)) return true;
  return (at >= sizeof(Record) + record.path_length && at < record.data_offset) ||
         at >= record.data_offset + record.data_size;
}

void round_trip(fuzz::Input input) {
  const std::uint64_t fill = input.number<std::uint16_t>();
  const auto shape = static_cast<RecordShape>(input.byte() % 3);
  const auto flip = input.number<std::uint32_t>();
  const std::size_t stretch = input.byte() % 4 == 0 ? 40'000 : 0;
  std::string path("/");
  path += input.text(input.byte() * 17 % 4000);
  std::string data(input.rest());
  data.resize(data.size() + stretch, 'x');

  const RecordPlan plan = plan_record(fill, path.size(), data.size(), shape);
  FUZZ_CHECK(plan.start >= fill && plan.start % 64 == 0 && plan.end % 64 == 0, "plan");
  FUZZ_CHECK(plan.data >= plan.start + sizeof(Record) + path.size() + 1 &&
                 plan.end >= plan.data + data.size(),
             "plan");
  FUZZ_CHECK(!plan.mappable || (plan.data % k_page == 0 && plan.end % k_page == 0), "plan");
  Bytes segment(plan.end);
  std::memset(segment.data, 0xa5, segment.size);
  if (!data.empty()) std::memcpy(segment.data + plan.data, data.data(), data.size());
  RecordContent content{
      .path = path, .stat = {}, .physical = true, .fetched_ns = fill, .verified_ns = flip};
  content.stat.size = data.size();
  content.stat.inode = flip;
  write_record(segment.data, plan, content);

  const std::uint64_t room = plan.end - plan.start;
  Bytes alone(room);
  std::memcpy(alone.data, segment.data + plan.start, room);
  const Record& record = alone.record();
  FUZZ_CHECK(header_is_sound(record, room) && data_is_sound(record),
             "what was written is not accepted");
  FUZZ_CHECK(!header_is_sound(record, room - 1), "it does not fit");
  FUZZ_CHECK(record.path() == path && record.path_text()[path.size()] == '\0', "path");
  FUZZ_CHECK(
      record.data_size == data.size() && std::memcmp(record.data(), data.data(), data.size()) == 0,
      "data");
  FUZZ_CHECK(record.stat.inode == flip && record.is_stale(), "fields");
  // A flipped bit must be noticed, except in a mark or in padding.
  const std::size_t at = flip / 8 % room;
  alone.data[at] ^= static_cast<std::byte>(1U << (flip % 8));
  if (is_mark_or_padding(alone.record(), at)) return;
  FUZZ_CHECK(!header_is_sound(record, room) || !data_is_sound(record), "a flipped bit at %zu", at);
}

}  // namespace
}  // namespace cube::cache

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  cube::fuzz::Input input(data, size);
  switch (input.byte() % 3) {
    case 0: cube::cache::try_bytes(input.rest(), false); break;
    case 1: cube::cache::try_bytes(input.rest(), true); break;
    default: cube::cache::round_trip(input); break;
  }
  return 0;
}
