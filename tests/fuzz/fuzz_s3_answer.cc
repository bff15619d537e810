// Arbitrary answers of an object store: pages of listings, and error documents.
#include <string>

#include "prefetch/object/s3/list_page.h"
#include "prefetch/object/s3/xml.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  cube::s3::ListPage page;
  if (cube::s3::parse_list_page(text, page)) {
    std::size_t bytes = 0;
    for (const auto& object : page.objects) bytes += object.key.size();
    FUZZ_CHECK(bytes <= size, "keys of %zu bytes from a page of %zu", bytes, size);
  }
  cube::s3::XmlReader reader(text);
  while (reader.next()) FUZZ_CHECK(reader.text().size() <= size, "a text grew");
  cube::s3::xml_text(text, "Error/Code");
  return 0;
}
