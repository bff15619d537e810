// Hostile bytes as a pack. An opened pack must return errors or the packed bytes, and nothing
// beyond the pack may be read. Input: a byte that chooses the case, then either patches of a whole
// pack (place, length, bytes), with or without fitting hashes, or the bytes of a pack.
#include <sys/stat.h>
#include <sys/uio.h>

#include <cstring>
#include <iterator>
#include <map>

#include "cache/pack/make/pack_builder.h"
#include "cache/pack/pack_neighbours.h"
#include "cache/pack/pack_reader.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/forged_pack.h"

namespace cube::cache {
namespace {

constexpr int k_files = 40;
std::string name_of_file(int i) { return "d" + std::to_string(i % 3) + "/f" + std::to_string(i); }
std::string content_of_file(int i) {
  return std::string(static_cast<std::size_t>(i) * 13, static_cast<char>('a' + i % 26));
}

const std::string& whole_pack() {
  static const auto* const bytes = [] {
    const std::string root = fuzz::directory() + "/tree", file = fuzz::directory() + "/whole.cube";
    mkdir(root.c_str(), 0700);
    for (int d = 0; d < 3; ++d) mkdir((root + "/d" + std::to_string(d)).c_str(), 0700);
    for (int i = 0; i < k_files; ++i)
      fuzz::write_file(root + "/" + name_of_file(i), content_of_file(i));
    FUZZ_CHECK(symlink("d0/f0", (root + "/link").c_str()) == 0, "link");
    PackBuild build;
    build.root = root;
    build.file = file;
    build.threads = 1;
    std::string why;
    PackBuilder builder(build);
    FUZZ_CHECK(builder.run(why) == PackBuilder::End::done, "%s", why.c_str());
    std::ifstream stream(file, std::ios::binary);
    return new std::string(std::istreambuf_iterator<char>(stream), {});
  }();
  return *bytes;
}

void read_all(const PackReader& pack, const PackEntry& entry, const std::string* expected) {
  if (entry.data_size > 1 << 20) return;
  std::string data(entry.data_size, '\0');
  const auto read = pack.read(entry, reinterpret_cast<std::byte*>(data.data()));
  if (!read) return;
  if (expected != nullptr) FUZZ_CHECK(data == *expected, "other bytes");
  if (entry.kind != RecordKind::directory) return;
  PackListingReader names(data);
  std::string_view name;
  PackName row{};
  while (names.next(name, row)) FUZZ_CHECK(is_pack_name(name), "name");
}

// Does the same as a miss of a file, which also fetches other files.
void look_around(const std::string& file) {
  std::string why;
  const auto mount = PackMount::open({.prefix = "/p", .file = file}, why);
  FUZZ_CHECK(mount != nullptr, "%s", why.c_str());
  std::map<std::string, std::string, std::less<>> expected;
  for (int i = 0; i < k_files; ++i) expected["/p/" + name_of_file(i)] = content_of_file(i);
  const auto check = [&](std::string_view path, const PackMount::Content& content) {
    const auto at = expected.find(path);
    const std::string_view data(reinterpret_cast<const char*>(content.data), content.stat.size);
    FUZZ_CHECK(at == expected.end() || data == at->second, "other bytes: %s",
               std::string(path).c_str());
  };
  base::Scratch scratch;
  for (const auto& [path, data] : expected) {
    PackMount::Content content, neighbour;
    if (mount->read(path, 1 << 20, scratch, content, PackMount::Reach::window) &&
        content.data != nullptr)
      check(path, content);
    PackNeighbours neighbours(*mount, content);
    std::string_view name;
    while (neighbours.next(name, neighbour)) check(name, neighbour);
  }
}

void look_at(const std::string& bytes) {
  const std::string file = fuzz::directory() + "/pack.cube";
  fuzz::write_file(file, bytes);
  std::string why;
  const auto pack = PackReader::open(file, why);
  if (pack == nullptr) {
    FUZZ_CHECK(!why.empty() && why.find('\n') == std::string::npos, "no sentence");
    return;
  }
  pack->index_is_sound();
  for (int i = 0; i < k_files; ++i) {
    const std::string path = name_of_file(i), expected = content_of_file(i);
    const auto entry = pack->find(path);
    if (entry && entry->kind == RecordKind::file) read_all(*pack, *entry, &expected);
    const auto slot = pack->locate(base::hash_path(path));
    if (!slot || slot->bytes > 1 << 20) continue;
    std::vector<std::uint64_t> room(slot->bytes / 8 + 1);
    auto* const to = reinterpret_cast<std::byte*>(room.data());
    const auto record = pack->read_record(*slot, path, to);
    if (record && record->kind == RecordKind::file)
      FUZZ_CHECK(
          std::string_view(reinterpret_cast<char*>(to) + (record->data_offset - record->offset),
                           record->data_size) == expected,
          "other bytes in the record");
  }
  pack->find("");
  PackScan scan = pack->scan();
  PackEntry entry;
  std::string_view path;
  while (scan.next(entry, path) == PackScan::Next::record) {
    FUZZ_CHECK(is_pack_path(path) && entry.end() <= pack->header().records_end, "entry");
    read_all(*pack, entry, nullptr);
  }
  look_around(file);
}

void patch(fuzz::Input input, bool mended) {
  std::string bytes = whole_pack();
  while (input.left() > 0) {
    // Chooses a place in the header, near the index, or anywhere.
    std::size_t at = input.number<std::uint32_t>();
    const std::size_t index = reinterpret_cast<const PackHeader*>(whole_pack().data())->index_begin;
    at = at % 4 == 0   ? at / 4 % sizeof(PackHeader)
         : at % 4 == 1 ? index + at / 4 % (bytes.size() - index)
                       : at / 4 % bytes.size();
    const auto text = input.text(input.byte() % 16 + 1);
    std::memcpy(bytes.data() + at, text.data(), std::min(text.size(), bytes.size() - at));
  }
  if (mended) tests::forge_frame(bytes);
  look_at(bytes);
}

}  // namespace
}  // namespace cube::cache

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  cube::fuzz::Input input(data, size);
  switch (input.byte() % 4) {
    case 0: cube::cache::look_at(std::string(input.rest())); break;
    case 1: {
      const auto& whole = cube::cache::whole_pack();
      cube::cache::look_at(whole.substr(0, input.number<std::uint32_t>() % (whole.size() + 1)));
      break;
    }
    case 2: cube::cache::patch(input, false); break;
    default: cube::cache::patch(input, true); break;
  }
  return 0;
}
