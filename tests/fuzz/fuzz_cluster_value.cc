// A value that a node has written and that was changed afterwards. If its hashes do not fit, it
// must be refused. If the hashes are recomputed, it may be accepted only in the form that nodes
// write, with all offsets inside its bytes. Input: the size of the file and its path, changes
// (place and byte), and whether the hashes are recomputed.
#include <sys/stat.h>

#include <cstring>
#include <memory>

#include "cache/base/hash.h"
#include "cache/record/record_hash.h"
#include "cache/tier/shared/cluster_record.h"
#include "tests/fuzz/fuzz.h"

namespace cube::cache {
namespace {

constexpr std::size_t k_most_file = 600, k_most_path = 200, k_most_changes = 24;

bool is_within(std::uint64_t from, std::uint64_t bytes, std::uint64_t all) {
  return from <= all && bytes <= all - from;
}

void make_hashes(Record& record, std::size_t size) {
  if (is_within(record.data_offset, record.data_size, size))
    record.data_hash = base::hash_bytes(record.data(), record.data_size);
  // The path must lie within the bytes.
  if (is_within(sizeof(Record), record.path_length, size))
    record.header_hash = header_hash_of(record);
}

void check_taken(const Record& record, std::string_view path, std::size_t size) {
  FUZZ_CHECK(record.path() == path && record.record_size == size);
  FUZZ_CHECK(is_within(record.data_offset, record.data_size, size) &&
             record.data_offset > sizeof(Record) + path.size());
  FUZZ_CHECK(record.kind == RecordKind::file && record.data_size == record.stat.size &&
             record.stat.is_regular());
  FUZZ_CHECK(base::hash_bytes(record.data(), record.data_size) == record.data_hash);
  FUZZ_CHECK(!record.is_stale() && record.views == 0 && !record.is_prefetched() &&
             !record.is_from_cluster());
}

}  // namespace
}  // namespace cube::cache

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cube::cache;
  namespace base = cube::base;
  cube::fuzz::Input input(data, size);
  alignas(64) static Record original;
  std::memset(static_cast<void*>(&original), 0, sizeof original);
  original.kind = RecordKind::file;
  original.data_size = original.stat.size = input.number<std::uint16_t>() % k_most_file;
  original.stat.mode = S_IFREG | 0644;
  const std::string path(input.text(input.byte() % k_most_path + 1));
  std::string bytes(original.data_size, 'b');
  original.data_hash = base::hash_bytes(bytes.data(), bytes.size());
  static const auto head = std::make_unique<ClusterHead>();
  write_cluster_head(content_for_cluster(original, path), {.job = 1, .node = 2}, *head);

  // The value has its own memory block, so that the sanitizer detects a read beyond its end.
  const std::size_t whole = head->size + bytes.size() + head->padding;
  const std::uint8_t how = input.byte();
  const std::size_t cut = how % 4 == 3 ? input.number<std::uint16_t>() % (whole + 1) : whole;
  const std::unique_ptr<std::byte, decltype(&std::free)> value(
      static_cast<std::byte*>(std::aligned_alloc(64, whole)), std::free);
  std::memset(value.get(), 0, whole);
  std::memcpy(value.get(), head->bytes, head->size);
  std::memcpy(value.get() + head->size, bytes.data(), bytes.size());
  const std::unique_ptr<std::byte, decltype(&std::free)> before(
      static_cast<std::byte*>(std::malloc(whole)), std::free);
  std::memcpy(before.get(), value.get(), whole);
  for (std::size_t i = 0; i < k_most_changes && input.left() != 0; ++i) {
    const std::size_t at = input.number<std::uint16_t>() % whole;
    value.get()[at] = static_cast<std::byte>(input.byte());
  }
  auto& record = *reinterpret_cast<Record*>(value.get());
  const bool is_forged = how % 4 >= 2;
  if (is_forged) make_hashes(record, whole);
  const bool is_same = cut == whole && std::memcmp(before.get(), value.get(), whole) == 0;
  // The value is truncated, so nothing may be read past its end. The sanitizer detects such a read.
  const Record* const taken = check_cluster_value({value.get(), cut}, RecordKind::file, path);
  FUZZ_CHECK(!is_same || taken != nullptr, "a whole one is refused");
  FUZZ_CHECK(is_same || is_forged || taken == nullptr, "a changed one is taken");
  if (taken != nullptr) check_taken(*taken, path, cut);
  return 0;
}
