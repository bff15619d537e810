// A small tree, and packs of it. Thread safety: one thread.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "cache/pack/make/pack_builder.h"
#include "cache/pack/pack_reader.h"
#include "tests/support/temp_dir.h"

namespace cube::tests {

inline std::string content_of(std::size_t size, unsigned seed) {
  std::string text(size, '\0');
  for (std::size_t i = 0; i < size; ++i)
    text[i] = static_cast<char>((i * 131 + seed * 7919 + i / 251) & 0xff);
  return text;
}

inline std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct SampleTree {
  TempDir dir;
  std::string root = dir / "tree", pack = dir / "set.cube";
  std::map<std::string, std::string> files;
  std::vector<std::string> skipped;

  SampleTree() { std::filesystem::create_directories(root); }

  void write(const std::string& path, const std::string& content) {
    std::filesystem::create_directories(std::filesystem::path(root + "/" + path).parent_path());
    ASSERT_TRUE(TempDir::write_file(root + "/" + path, content));
    files[path] = content;
  }
  // Writes files of all sizes for which a layout could be wrong.
  void fill() {
    unsigned seed = 0;
    for (const std::size_t size : {0, 1, 63, 64, 65, 1000, 4096, 32767, 32768, 32769, 100'000,
                                   524'288, 524'289, 1'000'000}) {
      write("sizes/" + std::to_string(size), content_of(size, ++seed));
    }
    for (int i = 0; i < 300; ++i)
      write("many/d" + std::to_string(i % 7) + "/f" + std::to_string(i),
            content_of(200 + i, ++seed));
    write("odd/new\nline", "1");
    write("odd/\xff\xfe", "2");
    write("odd/ space", "3");
    write("odd/-dash", "4");
    write("a.b", "before a/ in no order but that of bytes");
    write("a/x", "5");
    std::filesystem::create_directories(root + "/empty/nested");
    std::filesystem::create_symlink("../a/x", root + "/odd/link");
    std::filesystem::create_symlink("nowhere", root + "/broken");
  }

  cache::PackBuild build() {
    cache::PackBuild build;
    build.root = root;
    build.file = pack;
    build.threads = 3;
    build.skipped = [this](cache::PackSkip reason, std::string_view path, int) {
      skipped.push_back(std::string(path) + ": " + std::string(cache::name_of(reason)));
    };
    return build;
  }
  // Returns an empty string on success.
  std::string make(const cache::PackBuild& build, std::uint64_t* resumed = nullptr) {
    skipped.clear();
    cache::PackBuilder builder(build);
    std::string why;
    const auto end = builder.run(why);
    if (resumed != nullptr) *resumed = builder.resumed();
    return end == cache::PackBuilder::End::done      ? ""
           : end == cache::PackBuilder::End::stopped ? "stopped"
                                                     : why;
  }
  std::string make() { return make(build()); }
  std::unique_ptr<cache::PackReader> open() {
    std::string why;
    auto reader = cache::PackReader::open(pack, why);
    EXPECT_NE(reader, nullptr) << why;
    return reader;
  }
};

// Returns the bytes, or "" after an error.
inline std::string read_all(const cache::PackReader& pack, const cache::PackEntry& entry,
                            int& error) {
  std::string data(entry.data_size, '\0');
  const auto read = pack.read(entry, reinterpret_cast<std::byte*>(data.data()));
  error = read ? 0 : read.error().value;
  return read ? data : std::string();
}

}  // namespace cube::tests
