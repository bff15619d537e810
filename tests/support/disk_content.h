// For tests of the disk tier: records in memory in the form of a RAM segment, a directory for the
// store, and functions that read records back.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/tier/disk/disk_store.h"
#include "tests/support/temp_dir.h"

namespace cube::tests {

// Returns bytes that identify their file and place.
inline std::string content_of(std::string_view path, std::size_t size, unsigned version = 0) {
  std::string content(size, '\0');
  std::uint64_t state = base::hash_path(path) + version;
  for (char& c : content) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    c = static_cast<char>(state >> 56);
  }
  return content;
}

class RamSegment {
 public:
  explicit RamSegment(std::size_t bytes = 2 << 20)
      : bytes_(bytes), data_(new(std::align_val_t{cache::k_page}) std::byte[bytes]{}) {}
  // Returns false if the segment is full.
  bool add(std::string_view path, std::string_view content, std::uint64_t inode = 0,
           std::int64_t modified = 1) {
    const auto plan = cache::plan_record(fill_, path.size(), content.size());
    if (plan.end > bytes_) return false;
    std::memcpy(data_.get() + plan.data, content.data(), content.size());
    cache::FileStat stat{};
    stat.size = content.size();
    stat.inode = inode != 0 ? inode : base::hash_path(path) >> 1;
    stat.mode = S_IFREG | 0644;
    stat.modified.seconds = modified;
    cache::write_record(data_.get(), plan, {.path = path, .stat = stat});
    reinterpret_cast<cache::Record*>(data_.get() + plan.start)->stale.store(0);
    offsets_.push_back(plan.start);
    fill_ = plan.end;
    return true;
  }
  std::span<const std::byte> bytes() const { return {data_.get(), bytes_}; }
  const std::vector<std::uint64_t>& offsets() const { return offsets_; }
  cache::Record& record(std::size_t i) {
    return *reinterpret_cast<cache::Record*>(data_.get() + offsets_[i]);
  }
  std::byte* data() { return data_.get(); }

 private:
  struct Free {
    void operator()(std::byte* p) const { operator delete[](p, std::align_val_t{cache::k_page}); }
  };
  std::size_t bytes_, fill_ = 0;
  std::unique_ptr<std::byte[], Free> data_;
  std::vector<std::uint64_t> offsets_;
};

inline std::unique_ptr<cache::DiskStore> open_store(const cache::DiskOptions& options) {
  std::string why;
  auto store = cache::DiskStore::open(options, why);
  EXPECT_TRUE(store.has_value()) << why;
  return store ? std::move(*store) : nullptr;
}

struct PageBuffer {
  explicit PageBuffer(std::size_t n)
      : size(n), data(new(std::align_val_t{cache::k_page}) std::byte[n]) {}
  ~PageBuffer() { operator delete[](data, std::align_val_t{cache::k_page}); }
  PageBuffer(const PageBuffer&) = delete;
  PageBuffer& operator=(const PageBuffer&) = delete;
  std::size_t size;
  std::byte* data;
};

// Returns the bytes that the store has for this path.
inline std::optional<std::string> read_back(cache::DiskStore& store, std::string_view path,
                                            int* error = nullptr, bool* is_of_this_run = nullptr) {
  if (error != nullptr) *error = 0;
  for (const auto& place : store.find(base::hash_path(path))) {
    const PageBuffer buffer(place.buffer_bytes());
    const auto record = store.read(place, path, {buffer.data, buffer.size});
    if (is_of_this_run != nullptr) *is_of_this_run = place.is_of_this_run;
    if (record)
      return std::string(reinterpret_cast<const char*>((*record)->data()), (*record)->data_size);
    if (error != nullptr) *error = record.error().value;
  }
  return std::nullopt;
}

struct DiskFixture {
  TempDir dir;
  cache::DiskOptions options{
      .directory = dir.path(), .size_bound = 64 << 20, .is_durable = false, .job = 1};
  std::string path() const {
    return dir.path() + "/cubeshim-" + std::to_string(geteuid()) + "-default";
  }
  std::string segment(unsigned number) const {
    char name[32];
    std::snprintf(name, sizeof name, "/segment-%08u", number);
    return path() + name;
  }
};

inline std::string name_of(std::size_t i) { return "/mnt/data/file-" + std::to_string(i); }
inline std::size_t size_of(std::size_t i) { return i * 977 % 20'000; }

// Appends the files [first, last), and fills one RAM segment after another.
inline cache::DiskAppended append_files(cache::DiskStore& store, std::size_t first,
                                        std::size_t last, unsigned version = 0) {
  cache::DiskAppended sum;
  for (std::size_t i = first; i < last;) {
    RamSegment segment;
    while (i < last &&
           segment.add(name_of(i), content_of(name_of(i), size_of(i), version), 0, version + 1))
      ++i;
    const auto done = store.append(segment.bytes(), segment.offsets());
    if (!done) return sum;
    sum.written += done->written;
    sum.there_already += done->there_already;
    sum.stale += done->stale;
    sum.refused += done->refused;
  }
  return sum;
}

struct Found {
  std::size_t right = 0, wrong = 0, missing = 0;
};
inline Found look_for_files(cache::DiskStore& store, std::span<const std::string> contents) {
  Found found;
  for (std::size_t i = 0; i < contents.size(); ++i) {
    const auto got = read_back(store, name_of(i));
    if (!got) {
      ++found.missing;
    } else {
      ++(*got == contents[i] ? found.right : found.wrong);
    }
  }
  return found;
}
inline Found look_for_files(cache::DiskStore& store, std::size_t count, unsigned version = 0) {
  std::vector<std::string> contents;
  for (std::size_t i = 0; i < count; ++i)
    contents.push_back(content_of(name_of(i), size_of(i), version));
  return look_for_files(store, contents);
}

}  // namespace cube::tests
