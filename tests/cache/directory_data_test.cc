#include "cache/record/directory_data.h"

#include <dirent.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "cache/base/hash.h"

namespace cube::cache {
namespace {

std::vector<std::byte> entries_of(const std::vector<std::string>& names) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::size_t length =
        (offsetof(struct ::dirent, d_name) + names[i].size() + 1 + 7) / 8 * 8;
    std::vector<std::byte> one(length);
    const std::uint64_t inode = 100 + i;
    const auto own = static_cast<std::uint16_t>(length);
    const std::uint8_t type = i % 2 == 0 ? DT_REG : DT_DIR;
    std::memcpy(one.data(), &inode, sizeof inode);
    std::memcpy(one.data() + offsetof(struct ::dirent, d_reclen), &own, sizeof own);
    std::memcpy(one.data() + offsetof(struct ::dirent, d_type), &type, sizeof type);
    std::memcpy(one.data() + offsetof(struct ::dirent, d_name), names[i].data(), names[i].size());
    bytes.insert(bytes.end(), one.begin(), one.end());
  }
  return bytes;
}

// A record with data of a directory, in its own memory.
class DirectoryRecord {
 public:
  DirectoryRecord(RecordKind kind, const std::vector<std::byte>& data) : room_((1 << 20) / 8) {
    const RecordPlan plan = plan_record(0, 2, data.size(), RecordShape::compact);
    std::memcpy(bytes() + plan.data, data.data(), data.size());
    RecordContent content;
    content.kind = kind;
    content.path = "/d";
    content.data_size = data.size();
    write_record(bytes(), plan, content);
  }
  const Record& operator*() { return *reinterpret_cast<const Record*>(bytes()); }
  std::byte* data() { return const_cast<std::byte*>((**this).data()); }

 private:
  std::byte* bytes() { return reinterpret_cast<std::byte*>(room_.data()); }
  std::vector<std::uint64_t> room_;
};

std::vector<std::byte> listing_of(const std::vector<std::string>& names,
                                  bool proves_negative_entries = true) {
  const auto entries = entries_of(names);
  const auto count = DirectoryData::count_of(entries);
  std::vector<std::byte> data(DirectoryData::bytes_for(*count, entries.size()));
  DirectoryData::write(data.data(), entries, *count,
                       {.proves_negative_entries = proves_negative_entries});
  return data;
}

TEST(DirectoryData, FindsExactlyTheListedNames) {
  std::vector<std::string> names{".", ".."};
  for (int i = 0; i < 3000; ++i) names.push_back("name" + std::to_string(i));
  names.push_back(std::string(255, 'x'));
  DirectoryRecord record(RecordKind::directory, listing_of(names));
  const auto data = DirectoryData::of(*record);
  ASSERT_TRUE(data);
  EXPECT_EQ(data->count(), names.size());
  EXPECT_TRUE(data->proves_negative_entries());
  for (std::uint32_t i = 0; i < names.size(); ++i) {
    const auto found = data->find(names[i]);
    ASSERT_TRUE(found) << names[i];
    EXPECT_EQ(found->place, i);
    EXPECT_EQ(found->inode, 100 + i);
    EXPECT_EQ(data->at(i)->name, names[i]);
  }
  for (const char* const none : {"name", "name3000", "", "...", "nam"})
    EXPECT_FALSE(data->find(none)) << none;
  EXPECT_FALSE(data->at(data->count()));
}

TEST(DirectoryData, FindsNamesIgnoringCase) {
  const auto listing = listing_of({".", "..", "az", "AZ.txt", "Zoo", "zebra", "@", "{", "1"});
  DirectoryRecord record(RecordKind::directory, listing);
  const auto data = DirectoryData::of(*record);
  ASSERT_TRUE(data);
  for (const char* const name : {"AZ", "aZ", "az.TXT", "ZOO", "zoo", "ZEBRA", "Zebra", "@", "{"})
    EXPECT_TRUE(data->has_in_any_case(name)) << name;
  for (const char* const none : {"`", "[", "Q"}) EXPECT_FALSE(data->has_in_any_case(none)) << none;
}

TEST(DirectoryData, TakesAtMost64BytesPerNameBeyondTheName) {
  std::vector<std::string> names;
  std::size_t length = 0;
  for (int i = 0; i < 5000; ++i) {
    names.push_back("image_" + std::to_string(i) + ".jpg");
    length += names.back().size();
  }
  EXPECT_LE(listing_of(names).size(), length + 64 * names.size());
}

TEST(DirectoryData, RefusesMalformedEntries) {
  auto entries = entries_of({"a", "b"});
  ASSERT_EQ(DirectoryData::count_of(entries), 2U);
  const std::uint16_t bad[] = {0, 3, 16, 20, 4096};
  for (const std::uint16_t length : bad) {
    auto broken = entries;
    std::memcpy(broken.data() + offsetof(struct ::dirent, d_reclen), &length, sizeof length);
    EXPECT_FALSE(DirectoryData::count_of(broken)) << length;
  }
  // No zero byte follows the name.
  std::memset(entries.data() + offsetof(struct ::dirent, d_name), 'x',
              24 - offsetof(struct ::dirent, d_name));
  EXPECT_FALSE(DirectoryData::count_of(entries));
}

// A file system in user space can have names of more than 255 bytes, but a program's buffer for
// readdir_r has room for only 255.
TEST(DirectoryData, RefusesOverlongNames) {
  EXPECT_TRUE(DirectoryData::count_of(entries_of({std::string(255, 'x')})));
  EXPECT_FALSE(DirectoryData::count_of(entries_of({"a", std::string(261, 'x')})));
  auto long_entry = entries_of({"a"});
  long_entry.resize(512);
  const std::uint16_t length = 512;
  std::memcpy(long_entry.data() + offsetof(struct ::dirent, d_reclen), &length, sizeof length);
  EXPECT_FALSE(DirectoryData::count_of(long_entry));
}

TEST(DirectoryData, RefusesAnImpossibleCount) {
  DirectoryRecord record(RecordKind::directory, listing_of({".", ".."}));
  for (const std::uint32_t count : {0x55555556U, 0x80000000U, 0xaaaaaaaaU, 0xffffffffU}) {
    std::memcpy(record.data(), &count, sizeof count);
    EXPECT_FALSE(DirectoryData::of(*record)) << count;
  }
}

TEST(DirectoryData, ReadsStayWithinADamagedRecord) {
  const auto sound = listing_of({".", "..", "abc", "def", "ghi"});
  for (std::size_t at = 0; at < sound.size(); ++at) {
    for (const int value : {0, 1, 0x7f, 0xff}) {
      DirectoryRecord record(RecordKind::directory, sound);
      record.data()[at] = static_cast<std::byte>(value);
      const auto data = DirectoryData::of(*record);
      if (!data) continue;
      for (const char* const name : {"abc", "ghi", "none"}) static_cast<void>(data->find(name));
      for (std::uint32_t i = 0; i < data->count() + 2; ++i) static_cast<void>(data->at(i));
    }
  }
}

TEST(StatTable, FindsOnlyPlacesOfItsListing) {
  std::vector<StatTable::Entry> entries(3);
  entries[1].stat.size = 77;
  entries[1].looked_ns = 5;
  std::vector<std::byte> data(StatTable::bytes_for(3, 0));
  StatTable::write(data.data(), 42, entries, {});
  DirectoryRecord record(RecordKind::stat, data);
  ASSERT_NE(StatTable::find(*record, 42, 1), nullptr);
  EXPECT_EQ(StatTable::find(*record, 42, 1)->stat.size, 77U);
  EXPECT_EQ(StatTable::find(*record, 42, 0), nullptr) << "nothing is known of it";
  EXPECT_EQ(StatTable::find(*record, 43, 1), nullptr) << "another listing";
  EXPECT_EQ(StatTable::find(*record, 42, 3), nullptr) << "no such place";
}

TEST(StatTable, FindsTheTargetsOfLinks) {
  std::vector<StatTable::Entry> entries(3);
  const std::string targets("../blobs/a\0b\0", 13);
  for (auto& entry : entries) entry.looked_ns = 5;
  entries[0].target = 1;
  entries[2].target = 12;
  std::vector<std::byte> sound(StatTable::bytes_for(3, targets.size()));
  StatTable::write(sound.data(), 42, entries, targets);
  const auto target = [](DirectoryRecord& record, std::uint32_t place) {
    const auto* const entry = StatTable::find(*record, 42, place);
    return entry != nullptr ? StatTable::target_of(*record, *entry) : std::string_view("no table");
  };
  DirectoryRecord record(RecordKind::stat, sound);
  EXPECT_EQ(target(record, 0), "../blobs/a");
  EXPECT_EQ(target(record, 1), "");
  EXPECT_EQ(target(record, 2), "b");
  for (std::size_t at = 0; at < sound.size(); ++at) {
    for (const int value : {0, 1, 0x7f, 0xff}) {
      DirectoryRecord damaged(RecordKind::stat, sound);
      damaged.data()[at] = static_cast<std::byte>(value);
      for (std::uint32_t place = 0; place < 4; ++place) static_cast<void>(target(damaged, place));
    }
  }
}

}  // namespace
}  // namespace cube::cache
