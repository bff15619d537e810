// Hostile bytes as a segment file of the disk tier. Everything that the footer and the walk accept
// must be inside the file, and a walk may accept only records whose hashes fit. Input: a byte that
// chooses the case, then the bytes of the file after a sound header page.
#include <sys/mman.h>

#include <cstring>
#include <vector>

#include "cache/base/unique_fd.h"
#include "cache/record/record_hash.h"
#include "cache/tier/disk/segment_file.h"
#include "tests/fuzz/fuzz.h"

namespace cube::cache {
namespace {

constexpr std::uint32_t k_number = 7;

void put_header(std::vector<std::byte>& file) {
  DiskHeader header{};
  header.magic = DiskHeader::k_magic;
  header.version = k_disk_version;
  header.number = k_number;
  header.hash = hash_of(header);
  std::memcpy(file.data(), &header, sizeof header);
}

// A forger would set arbitrary fields and compute the checksums that fit them.
void mend_trailer(std::vector<std::byte>& file) {
  if (file.size() < k_disk_header_bytes + sizeof(DiskTrailer)) return;
  DiskTrailer trailer;
  std::byte* const at = file.data() + file.size() - sizeof trailer;
  std::memcpy(&trailer, at, sizeof trailer);
  trailer.magic = DiskTrailer::k_magic;
  trailer.version = k_disk_version;
  trailer.number = k_number;
  const std::uint64_t bytes = trailer.row_count * sizeof(DiskFooterRow);
  if (trailer.rows_at <= file.size() && bytes <= file.size() - trailer.rows_at) {
    trailer.rows_hash = base::hash_bytes(file.data() + trailer.rows_at, bytes);
  }
  trailer.hash = hash_of(trailer);
  std::memcpy(at, &trailer, sizeof trailer);
}

void check_rows(const SegmentContents& contents) {
  FUZZ_CHECK(contents.data_end <= contents.file_bytes, "end of data");
  for (const DiskFooterRow& row : contents.rows) {
    const std::uint64_t begin = std::uint64_t{row.offset} * 64,
                        bytes = std::uint64_t{row.size} * 64;
    FUZZ_CHECK(begin >= k_page && bytes >= sizeof(Record) && begin + bytes <= contents.data_end,
               "a row outside");
  }
}

void run(fuzz::Input input) {
  const std::uint8_t how = input.byte();
  const std::string_view text = input.rest();
  std::vector<std::byte> file(k_page);
  if ((how & 1) == 0) put_header(file);
  const auto* const bytes = reinterpret_cast<const std::byte*>(text.data());
  file.insert(file.end(), bytes, bytes + text.size());
  if ((how & 2) != 0) mend_trailer(file);
  const base::UniqueFd fd(static_cast<int>(base::sys::memfd_create("fuzz", 0)));
  FUZZ_CHECK(
      base::sys::pwrite(fd.get(), file.data(), file.size(), 0) == static_cast<long>(file.size()),
      "memfd");
  if (const auto footer = read_footer(fd.get(), k_number)) check_rows(*footer);
  const auto walk = walk_records(fd.get(), k_number);
  if (!walk) return;
  check_rows(*walk);
  for (const DiskFooterRow& row : walk->rows) {
    alignas(64) static std::byte record[8192];
    const std::uint64_t size = std::uint64_t{row.size} * 64;
    FUZZ_CHECK(size <= sizeof record, "larger than the input");
    std::memcpy(record, file.data() + std::uint64_t{row.offset} * 64, size);
    const auto& r = *reinterpret_cast<const Record*>(record);
    FUZZ_CHECK(header_is_sound(r, size) && data_is_sound(r), "not sound");
  }
  // If a walk has found the file's records, the file can be sealed. It then has a footer with the
  // same contents.
  const auto sealed = write_footer(fd.get(), k_number, walk->data_end, walk->rows, false);
  FUZZ_CHECK(sealed.has_value(), "seal");
  const auto again = read_footer(fd.get(), k_number);
  FUZZ_CHECK(again && again->rows.size() == walk->rows.size() && again->data_end == walk->data_end,
             "sealed and read again");
}

}  // namespace
}  // namespace cube::cache

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  cube::cache::run({data, size});
  return 0;
}
