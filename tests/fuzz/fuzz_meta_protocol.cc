// Arbitrary bytes from a server. As a line, they must be parsed or rejected without a read beyond
// the line. As the value of a record, they may be accepted only if the record is whole. As an
// answer of a name server, they must be handled in the same way. Each input is used for all of
// these.
#include <cstring>
#include <vector>

#include "cache/tier/cluster/dns/dns_message.h"
#include "cache/tier/cluster/meta_protocol.h"
#include "cache/tier/shared/cluster_record.h"
#include "tests/fuzz/fuzz.h"

namespace cube::cache {
namespace {

void check_lines(std::string_view text) {
  while (const std::size_t bytes = meta_line_bytes(text)) {
    FUZZ_CHECK(bytes >= 2 && bytes <= text.size(), "%zu of %zu bytes", bytes, text.size());
    // The line has its own memory block, so that the sanitizer detects a read beyond its end.
    const std::vector<char> line(text.begin(),
                                 text.begin() + static_cast<std::ptrdiff_t>(bytes - 2));
    const MetaAnswer answer = parse_meta_answer({line.data(), line.size()});
    const bool has_value = answer.kind == MetaAnswer::Kind::value;
    FUZZ_CHECK(!has_value || answer.has_size, "a value of no size");
    FUZZ_CHECK(answer.kind != MetaAnswer::Kind::figure ||
                   answer.name.size() + answer.text.size() < line.size(),
               "a figure beyond its line");
    text.remove_prefix(bytes);
  }
}

void check_value(std::string_view text) {
  alignas(64) static std::byte room[1 << 16];
  const std::size_t n = std::min(text.size(), sizeof room);
  std::memcpy(room, text.data(), n);
  const Record* const record = check_cluster_value({room, n}, RecordKind::file, "f");
  FUZZ_CHECK(
      record == nullptr || (record->data_offset + record->data_size <= n && record->path() == "f"),
      "a record beyond its bytes");
}

// Puts the fuzzed answer after a valid question, because the parser immediately rejects an answer
// without a question. The first two bytes are the number of answers.
void check_name_answer(std::string_view text) {
  std::byte question[k_most_dns_bytes];
  const std::size_t asked = write_dns_question("cache-0.cache", DnsType::v4, 7, question);
  question[2] = std::byte{0x81};
  std::vector<std::byte> answer(question, question + asked);
  for (std::size_t i = 0; i < 2 && i < text.size(); ++i)
    answer[6 + i] = static_cast<std::byte>(text[i]);
  for (const char c : text.substr(std::min<std::size_t>(text.size(), 2)))
    answer.push_back(static_cast<std::byte>(c));
  answer.shrink_to_fit();
  const DnsAnswer found = parse_dns_answer(answer, "cache-0.cache", DnsType::v4, 7);
  FUZZ_CHECK(found.kind != DnsAnswer::Kind::address || found.address.family() == AF_INET,
             "an address of family %d", found.address.family());
}

}  // namespace
}  // namespace cube::cache

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  cube::cache::check_lines(text);
  cube::cache::check_value(text);
  cube::cache::check_name_answer(text);
  return 0;
}
