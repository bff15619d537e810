// A tree below one prefix, a list, and all results of reading the list.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <string>
#include <vector>

#include "prefetch/order/path_list.h"
#include "tests/support/temp_dir.h"

namespace cube::prefetch::testing {

struct Lists : ::testing::Test {
  tests::TempDir dir;
  std::string prefix = dir / "data", list = dir / "list";
  bool look_at_each = true;
  std::unique_ptr<PathList> reader;
  PathList::Next last = PathList::Next::end;

  Lists() { mkdir(prefix.c_str(), 0700); }

  std::string in(const std::string& name) const { return prefix + "/" + name; }
  void make(const std::string& name) const {
    for (std::size_t slash = name.find('/'); slash != std::string::npos;
         slash = name.find('/', slash + 1)) {
      mkdir(in(name.substr(0, slash)).c_str(), 0700);
    }
    ASSERT_TRUE(tests::TempDir::write_file(in(name), "x")) << name;
  }
  void write(std::string_view text) const { ASSERT_TRUE(tests::TempDir::write_file(list, text)); }
  bool open(std::vector<std::string> prefixes = {}) {
    if (prefixes.empty()) prefixes = {prefix};
    std::string why;
    reader = PathList::open({list, prefixes, look_at_each}, why);
    EXPECT_NE(reader, nullptr) << why;
    return reader != nullptr;
  }
  // Returns all entries that follow, with paths relative to the prefix.
  std::vector<std::string> rest() {
    std::vector<std::string> found;
    std::uint64_t sequence = 0;
    PathEntry entry;
    while ((last = reader->next(entry)) == PathList::Next::entry) {
      EXPECT_TRUE(found.empty() || entry.sequence == sequence + 1);
      sequence = entry.sequence;
      const std::string path = entry.path;
      found.push_back(path.starts_with(prefix + "/") ? path.substr(prefix.size() + 1) : path);
    }
    return found;
  }
  std::vector<std::string> read(std::string_view text) {
    write(text);
    return open() ? rest() : std::vector<std::string>{};
  }
  std::uint64_t refused(Refusal reason) const { return reader->refusals().of(reason); }
  std::uint64_t refused() const {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < k_refusals; ++i) sum += refused(static_cast<Refusal>(i));
    return sum;
  }
};

using Names = std::vector<std::string>;

inline Names sorted(Names names) {
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace cube::prefetch::testing
