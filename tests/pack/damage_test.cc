// Packs that were damaged after they were written. Readers never crash, never return wrong bytes,
// and name the fault in a sentence.
#include <cstring>
#include <random>

#include "cache/pack/pack_mount.h"
#include "tests/pack/sample_tree.h"
#include "tests/support/forged_pack.h"

namespace cube::cache {
namespace {

using tests::SampleTree;

struct PackDamage : testing::Test {
  SampleTree tree;
  std::string whole, bad = tree.dir / "bad.cube";

  void SetUp() override {
    // The files are small, so that little of the pack is padding.
    for (unsigned i = 0; i < 90; ++i)
      tree.write("d" + std::to_string(i % 3) + "/f" + std::to_string(i),
                 tests::content_of(i * 9, i));
    tree.write("page", tests::content_of(33'000, 1));
    std::filesystem::create_symlink("d0/f0", tree.root + "/link");
    ASSERT_EQ(tree.make(), "");
    whole = tests::bytes_of(tree.pack);
  }

  std::string why_not(const std::string& bytes) {
    EXPECT_TRUE(tests::TempDir::write_file(bad, bytes));
    std::string why;
    return PackReader::open(bad, why) == nullptr ? why : "";
  }

  // Reads everything in the damaged pack, and checks that every answer is right.
  void look_at_all(std::size_t& answers) {
    std::string why;
    const auto pack = PackReader::open(bad, why);
    if (pack == nullptr) {
      EXPECT_FALSE(why.empty());
      EXPECT_EQ(why.find('\n'), std::string::npos);
      return;
    }
    pack->index_is_sound();
    for (const auto& [path, content] : tree.files) {
      const auto entry = pack->find(path);
      if (!entry) continue;
      int error = 0;
      const std::string data = tests::read_all(*pack, *entry, error);
      if (error != 0) continue;
      ++answers;
      ASSERT_EQ(data, content) << path;
    }
    PackScan scan = pack->scan();
    PackEntry entry;
    std::string_view path;
    while (scan.next(entry, path) == PackScan::Next::record) {
      const std::string name(path);
      int error = 0;
      const std::string data = tests::read_all(*pack, entry, error);
      if (error != 0 || entry.kind != RecordKind::file) continue;
      ASSERT_EQ(data, tree.files.at(name));
    }
  }
};

TEST_F(PackDamage, AThousandFlippedBytesGiveErrorsOrTheRightBytes) {
  std::mt19937_64 random(1);
  std::size_t answers = 0;
  for (int i = 0; i < 1000; ++i) {
    std::string bytes = whole;
    // Every fourth change is in the header, the index or the footer.
    const std::size_t index = reinterpret_cast<const PackHeader*>(whole.data())->index_begin;
    const std::size_t at = i % 8 == 0   ? random() % sizeof(PackHeader)
                           : i % 4 == 0 ? index + random() % (whole.size() - index)
                                        : random() % whole.size();
    bytes[at] = static_cast<char>(bytes[at] ^ static_cast<char>(1U << (random() % 8)));
    ASSERT_TRUE(tests::TempDir::write_file(bad, bytes));
    look_at_all(answers);
    ASSERT_FALSE(HasFatalFailure()) << "byte " << at;
  }
  // If there were fewer answers, the test would have examined almost nothing.
  EXPECT_GT(answers, 1000U * 60);
}

TEST_F(PackDamage, NoTruncatedPackIsOpened) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 1000; ++i) {
    const std::size_t size = i < 300 ? static_cast<std::size_t>(i) : random() % whole.size();
    ASSERT_NE(why_not(whole.substr(0, size)), "") << size;
  }
  EXPECT_EQ(why_not(whole), "");
  EXPECT_NE(why_not(whole + "x"), "");
}

// The index of the pack is mapped while the file is truncated.
TEST_F(PackDamage, APackThatIsCutShortWhileItIsUsedGivesErrors) {
  PackHeader header{};
  std::memcpy(&header, whole.data(), sizeof header);
  for (const std::uint64_t left : {std::uint64_t{0}, header.index_begin, header.index_begin + 8}) {
    ASSERT_EQ(why_not(whole), "");
    std::string why;
    const auto pack = PackReader::open(bad, why);
    const auto mount = PackMount::open({.prefix = "/p", .file = bad}, why);
    ASSERT_TRUE(pack != nullptr && mount != nullptr) << why;
    ASSERT_TRUE(pack->find("page"));
    std::filesystem::resize_file(bad, left);
    PackMount::FoundName found;
    for (const auto& [path, content] : tree.files) {
      EXPECT_FALSE(pack->find(path)) << path << " of " << left;
      const auto result = mount->find("/p/" + path, /*follows=*/true, found);
      ASSERT_FALSE(result) << path << " of " << left;
      EXPECT_EQ(result.error().value, EIO) << path << " of " << left;
    }
  }
}

TEST_F(PackDamage, AForgedIndexIsCheckedWhereItIsUsed) {
  // A forger has made wrong values with right hashes.
  std::mt19937_64 random(3);
  std::size_t answers = 0;
  PackHeader header{};
  std::memcpy(&header, whole.data(), sizeof header);
  for (int i = 0; i < 500; ++i) {
    std::string bytes = whole;
    for (int k = 0; k < 8; ++k) {
      const std::size_t at = header.index_begin + random() % (header.index_bytes / 8) * 8;
      const std::uint64_t value = i % 3 == 0   ? random()
                                  : i % 3 == 1 ? random() % whole.size() / 64 * 64
                                               : ~0ULL - random() % 300;
      std::memcpy(bytes.data() + at, &value, sizeof value);
    }
    ASSERT_TRUE(tests::TempDir::write_file(bad, bytes));
    look_at_all(answers);
    ASSERT_FALSE(HasFatalFailure());
  }
}

TEST_F(PackDamage, AForgedHeaderIsRefused) {
  std::mt19937_64 random(4);
  for (std::size_t at = offsetof(PackHeader, table_bits); at < offsetof(PackHeader, index_hash);
       at += 4) {
    // The numbers of links and files may be wrong as long as their sum is right.
    for (const std::uint32_t value : {0U, 1U, 64U, ~0U, static_cast<std::uint32_t>(random())}) {
      std::string bytes = whole;
      if (std::memcmp(bytes.data() + at, &value, sizeof value) == 0) continue;
      std::memcpy(bytes.data() + at, &value, sizeof value);
      tests::forge_frame(bytes);
      ASSERT_TRUE(tests::TempDir::write_file(bad, bytes));
      std::size_t answers = 0;
      look_at_all(answers);
      ASSERT_FALSE(HasFatalFailure()) << at << " " << value;
      const bool is_a_place = at == offsetof(PackHeader, records_end) ||
                              at == offsetof(PackHeader, data_bytes) ||
                              at == offsetof(PackHeader, data_bytes) + 4;
      if (is_a_place) continue;
      EXPECT_NE(why_not(bytes).find("the checksum of its header is wrong"), std::string::npos)
          << at << " " << value;
    }
  }
}

TEST_F(PackDamage, PathsOutOfThePackAreDamageEvenInASoundRecord) {
  const std::string long_name(256, 'n');
  for (const char* const path : {"../f", "/f", "a/../../f", "a//f", "f/", long_name.c_str()}) {
    SampleTree other;
    auto writer = PackWriter::open({.file = other.pack, .arguments_hash = 1});
    ASSERT_TRUE(writer);
    FileStat stat{};
    stat.mode = S_IFREG | 0644;
    stat.size = 4;
    ASSERT_TRUE((*writer)->add({.path = path, .stat = stat}, std::as_bytes(std::span("evil", 4))));
    ASSERT_TRUE((*writer)->finish());
    const auto pack = other.open();
    ASSERT_NE(pack, nullptr);
    const auto entry = pack->find(path);
    ASSERT_FALSE(entry);
    EXPECT_EQ(entry.error().value, EBADMSG);
    PackScan scan = pack->scan();
    PackEntry found;
    std::string_view name;
    EXPECT_EQ(scan.next(found, name), PackScan::Next::damaged);
  }
}

TEST_F(PackDamage, ErrorNamesTheDefect) {
  EXPECT_NE(why_not("").find("is not a pack"), std::string::npos);
  EXPECT_NE(why_not(std::string(10'000, 'x')).find("is not a pack: it has no header of a pack"),
            std::string::npos);
  EXPECT_NE(why_not(whole.substr(0, whole.size() - 1)).find("bytes and should have"),
            std::string::npos);
  std::string other = whole;
  other[offsetof(PackHeader, version)] = 2;
  EXPECT_NE(why_not(other).find("is a pack of version 2; this cubeshim reads version 1"),
            std::string::npos);
  std::string why;
  EXPECT_EQ(PackReader::open(tree.root, why), nullptr);
  EXPECT_NE(why.find("not a regular file"), std::string::npos);
  EXPECT_EQ(PackReader::open(tree.dir / "none", why), nullptr);
  EXPECT_NE(why.find("No such file"), std::string::npos);
}

}  // namespace
}  // namespace cube::cache
