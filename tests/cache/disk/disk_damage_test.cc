// Power cuts and flipped bytes. Damaged files never make the disk tier serve bytes that were not
// written.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "cache/base/log.h"
#include "cache/tier/disk/disk_store.h"
#include "tests/support/disk_content.h"
#include "tests/support/effort.h"
#include "tests/support/sanitizers.h"

namespace cube::cache {
namespace {

using tests::append_files;
using tests::DiskFixture;
using tests::name_of;
using tests::open_store;
using tests::size_of;

constexpr std::size_t k_files = 120;
// A sanitizer is ten times as slow, so it runs only a sample.
const int k_rounds = tests::k_asan || tests::k_tsan ? 50 : tests::rounds(200, 1000);

std::string load(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// A directory with two and a half segment files, whose writer is still alive.
class Damage : public testing::Test {
 protected:
  void SetUp() override {
    base::set_log_level(base::LogLevel::error);
    f_.options.size_bound = 8 << 20;
    f_.options.segment_bytes = 1 << 20;
    // Reads must not wait for the writes of restore(), because these waits would take most of the
    // time.
    f_.options.is_direct = false;
    for (std::size_t i = 0; i < k_files; ++i)
      contents_.push_back(tests::content_of(name_of(i), size_of(i)));
    const auto store = open_store(f_.options);
    ASSERT_EQ(append_files(*store, 0, k_files).written, k_files);
    for (const std::size_t i : {std::size_t{3}, k_files - 1})
      ASSERT_EQ(store->forget(name_of(i)), 1U);
    for (const auto& entry : std::filesystem::directory_iterator(f_.path()))
      files_.emplace_back(entry.path().string(), load(entry.path().string()));
    std::sort(files_.begin(), files_.end());  // so that each run has the same rounds
    for (std::size_t i = 0; i < files_.size(); ++i) {
      if (files_[i].first.find("segment-") != std::string::npos) segments_.push_back(i);
    }
    store->forget_writer();
    ASSERT_GE(segments_.size(), 2U);
  }
  void TearDown() override { base::set_log_level(base::LogLevel::warn); }

  void restore() {
    for (const auto& entry : std::filesystem::directory_iterator(f_.path()))
      std::filesystem::remove(entry);
    for (const auto& [path, content] : files_) tests::TempDir::write_file(path, content);
  }
  const std::string& content_of_index() const {
    return std::find_if(files_.begin(), files_.end(),
                        [&](const auto& f) { return f.first == index(); })
        ->second;
  }
  // Damages the index: some pages of its tables were not written in time, or hold entirely
  // different bytes.
  void tear(std::string& bytes) {
    for (std::size_t page = k_page; page + k_page <= bytes.size(); page += k_page) {
      if (random_() % 2 == 0) continue;
      const std::uint64_t how = random_() % 4;
      for (std::size_t at = page; at < page + k_page; at += sizeof(std::uint64_t)) {
        std::uint64_t word = 0;
        std::memcpy(&word, bytes.data() + at, sizeof word);
        if (how == 0) word = 0;
        if (how == 1 && random_() % 2 == 0) word = 0;  // its value before some entries were added
        if (how == 2) word = random_();
        // Keeps the old tags, but with the places of other records.
        if (how == 3 && word != 0)
          word = (word & ~std::uint64_t{0x3fffff}) | (random_() % (1 << 14));
        std::memcpy(bytes.data() + at, &word, sizeof word);
      }
    }
  }
  static void set_boot(std::string& bytes, std::uint64_t boot) {
    auto* const head = reinterpret_cast<DiskIndexHeader*>(bytes.data());
    head->boot = boot;
    head->hash = base::hash_bytes(head, offsetof(DiskIndexHeader, hash));
  }
  tests::Found look(DiskStore& store) const { return tests::look_for_files(store, contents_); }
  std::string index() const { return f_.path() + "/index"; }
  // Opens the damaged directory twice, and searches for all files.
  void check(int round) {
    for (int i = 0; i < 2; ++i) {
      std::string why;
      const auto store = DiskStore::open(f_.options, why);
      if (!store) {
        ++refused_;
        return;
      }
      const auto found = look(**store);
      ASSERT_EQ(found.wrong, 0U) << "round " << round;
      ASSERT_FALSE(tests::read_back(**store, name_of(3)))
          << "round " << round << ": it was forgotten";
      ASSERT_FALSE(tests::read_back(**store, name_of(k_files - 1))) << "round " << round;
      right_ += found.right;
    }
  }

  DiskFixture f_;
  std::vector<std::string> contents_;
  std::vector<std::pair<std::string, std::string>> files_;
  std::vector<std::size_t> segments_;
  std::size_t right_ = 0, refused_ = 0;
  std::mt19937_64 random_{7};
};

TEST_F(Damage, PowerCutAtAnyByteLosesOnlyUnwrittenRecords) {
  for (int round = 0; round < k_rounds; ++round) {
    restore();
    std::filesystem::remove(index());
    const auto& [path, content] = files_[segments_[random_() % segments_.size()]];
    // The data are at the beginning of the file.
    const std::uint64_t data =
        std::min<std::uint64_t>(content.size(), random_() % 2 == 0 ? 1 << 20 : 700'000);
    const std::uint64_t cut = random_() % (data + 1);
    std::string left = content.substr(0, cut);
    // The size may reach the disk before the data do.
    if (random_() % 2 == 0) left.resize(content.size(), '\0');
    ASSERT_TRUE(tests::TempDir::write_file(path, left));
    check(round);
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(refused_, 0U);
  EXPECT_GT(right_, static_cast<std::size_t>(k_rounds) * k_files)
      << "the other files, and what lies before the cut, are used";
}

TEST_F(Damage, PagesThatWereNotWrittenAreNeverServed) {
  for (int round = 0; round < k_rounds / 4; ++round) {
    restore();
    std::filesystem::remove(index());
    for (const std::size_t i : segments_) {
      std::string left = files_[i].second;
      for (std::size_t page = 0; page < left.size(); page += k_page) {
        if (random_() % 32 == 0)
          std::fill_n(left.begin() + static_cast<long>(page),
                      std::min<std::size_t>(k_page, left.size() - page), '\0');
      }
      ASSERT_TRUE(tests::TempDir::write_file(files_[i].first, left));
    }
    check(round);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(right_, 0U);
}

TEST_F(Damage, AFlippedByteAnywhereIsNeverServed) {
  std::uint64_t in_index = 0;
  for (int round = 0; round < k_rounds; ++round) {
    restore();
    // The byte is in the index, the version file or a segment. The index is used in half of the
    // rounds, and rebuilt in the other half.
    const std::size_t which =
        round % 4 == 0 ? random_() % files_.size() : segments_[random_() % segments_.size()];
    auto [path, content] = files_[which];
    if (content.empty()) continue;
    in_index += path == index() ? 1 : 0;
    content[random_() % std::min<std::size_t>(content.size(), 1'100'000)] ^=
        static_cast<char>(1 + random_() % 255);
    if (random_() % 2 == 0) std::filesystem::remove(index());
    if (path != index() || std::filesystem::exists(index())) {
      ASSERT_TRUE(tests::TempDir::write_file(path, content));
    }
    check(round);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(in_index, static_cast<unsigned>(k_rounds) / 50);
  EXPECT_GT(right_, static_cast<std::size_t>(k_rounds) * k_files);
}

TEST_F(Damage, TornIndexOfAnotherBootIsRebuiltCompletely) {
  for (int round = 0; round < k_rounds / 10; ++round) {
    restore();
    std::string torn = content_of_index();
    tear(torn);
    set_boot(torn, DiskIndex::current_boot() + 1);
    ASSERT_TRUE(tests::TempDir::write_file(index(), torn));
    check(round);
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(right_, 2U * static_cast<std::size_t>(k_rounds / 10) * (k_files - 2))
      << "all but what was forgotten, each time";
}

TEST_F(Damage, TornIndexOfThisBootServesNoWrongByte) {
  for (int round = 0; round < k_rounds / 10; ++round) {
    restore();
    std::string torn = content_of_index();
    tear(torn);
    ASSERT_TRUE(tests::TempDir::write_file(index(), torn));
    check(round);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(right_, 0U);
  EXPECT_LT(right_, 2U * static_cast<std::size_t>(k_rounds / 10) * (k_files - 2))
      << "nothing was torn, or it was not used";
}

TEST_F(Damage, ADamagedRecordIsDroppedCountedAndReportedOnce) {
  auto [path, content] = files_[segments_[0]];
  // Damages every page except the first, so that each record is damaged.
  for (std::size_t at = k_disk_header_bytes + 300; at < 600'000; at += 1000)
    content[at] = static_cast<char>(content[at] ^ 1);
  restore();
  const auto store = open_store(f_.options);
  ASSERT_TRUE(tests::TempDir::write_file(path, content));
  base::set_log_level(base::LogLevel::warn);
  testing::internal::CaptureStderr();
  const auto first = look(*store);
  const std::string said = testing::internal::GetCapturedStderr();
  const auto bad = store->status().bad_records;
  EXPECT_EQ(first.wrong, 0U);
  EXPECT_GT(bad, 10U);
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  EXPECT_NE(said.find("damaged"), std::string::npos) << said;
  EXPECT_EQ(look(*store).right, first.right);
  EXPECT_EQ(store->status().bad_records, bad) << "they are not looked at again";
}

}  // namespace
}  // namespace cube::cache
