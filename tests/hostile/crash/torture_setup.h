// The parts of the library that the torture turns on in addition to the cache in memory: a disk,
// packs, and a list for the prefetcher. One object serves all rounds. Thread safety: none; used
// only by the thread of the torture.
#pragma once

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "tests/hostile/crash/torture_files.h"
#include "tests/support/temp_dir.h"

namespace cube::torture {

struct Parts {
  bool disk = false, packs = false, list = false;

  // Turns on parts by name, as in "disk,list". Returns false if a name is unknown.
  bool add(std::string_view names) {
    while (!names.empty()) {
      const std::string_view name = names.substr(0, names.find(','));
      names.remove_prefix(std::min(names.size(), name.size() + 1));
      bool* const part = name == "disk"    ? &disk
                         : name == "packs" ? &packs
                         : name == "list"  ? &list
                                           : nullptr;
      if (part == nullptr) return false;
      *part = true;
    }
    return true;
  }
};

class Setup {
 public:
  static constexpr std::uint64_t k_disk = 32 << 20;

  Setup(const Parts& parts, const tests::TempDir& data, Board& board)
      : parts_(parts), data_(data.path()), board_(board) {
    if (parts.disk) mkdir(disk().c_str(), 0700);
    if (parts.packs) {
      mkdir((work_.path() + "/source").c_str(), 0755);
      board.has_packs = true;
      replace_pack();
    }
    if (parts.list) write_list();
  }

  std::vector<std::string> variables() const {
    std::vector<std::string> all;
    if (parts_.disk)
      all.insert(all.end(),
                 {"CUBESHIM_DISK_DIR=" + disk(), "CUBESHIM_DISK=" + std::to_string(k_disk)});
    if (parts_.packs) all.push_back("CUBESHIM_PACKS=" + data_ + "/packed=" + pack());
    if (parts_.list) all.push_back("CUBESHIM_PREFETCH_LIST=" + list());
    return all;
  }

  // Replaces the pack by another version under the same name. A process continues to see the
  // version that it opened at its start.
  bool replace_pack() {
    const std::uint64_t generation = board_.pack_version.load() / 2 + 1;
    for (int i = k_files; i < k_files + k_packed; ++i) {
      const std::string path = work_.path() + "/source/" + file_name(i),
                        bytes = content_of(i, generation);
      std::FILE* const file = std::fopen(path.c_str(), "wb");
      if (file == nullptr) return false;
      const bool is_written = std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
      if (std::fclose(file) != 0 || !is_written) return false;
    }
    const std::string made = work_.path() + "/new.cube";
    const std::string command = std::string(CUBESHIM_COMMAND " pack -q '") + work_.path() +
                                "/source' '" + made + "' >/dev/null";
    if (std::system(command.c_str()) != 0)
      return false;  // NOLINT(cert-env33-c): this program's own text
    board_.pack_version.fetch_add(1);
    const bool is_renamed = std::rename(made.c_str(), pack().c_str()) == 0;
    board_.pack_version.fetch_add(1);
    return is_renamed;
  }

  // Returns the names in a directory that begin with `beginning`.
  static std::vector<std::string> names_in(const std::string& directory,
                                           const std::string& beginning) {
    std::vector<std::string> names;
    DIR* const stream = opendir(directory.c_str());
    if (stream == nullptr) return names;
    while (const dirent* const entry = readdir(stream)) {
      const std::string name = entry->d_name;
      if (name != "." && name != ".." && name.starts_with(beginning)) names.push_back(name);
    }
    closedir(stream);
    return names;
  }

  // Returns the number of disk hits in a report.
  static std::uint64_t disk_hits_in(const std::string& path) {
    std::string text(8192, '\0');
    std::FILE* const file = std::fopen(path.c_str(), "rb");
    if (file == nullptr) return 0;
    text.resize(std::fread(text.data(), 1, text.size(), file));
    std::fclose(file);
    const std::size_t hits = text.find("\"hits\"");
    const std::size_t disk = hits == std::string::npos ? hits : text.find("\"disk\":", hits);
    return disk == std::string::npos ? 0 : std::strtoull(text.c_str() + disk + 7, nullptr, 10);
  }

  const Parts& parts() const { return parts_; }
  std::string disk() const { return work_.path() + "/disk"; }
  std::string report() const { return work_.path() + "/report"; }

 private:
  std::string pack() const { return work_.path() + "/set.cube"; }
  std::string list() const { return work_.path() + "/list"; }

  // Writes a list of all files and of names that no prefetcher can fetch: missing names, a
  // directory, a FIFO.
  void write_list() {
    mkdir((data_ + "/folder").c_str(), 0755);
    mkfifo((data_ + "/fifo").c_str(), 0644);
    std::FILE* const file = std::fopen(list().c_str(), "wb");
    if (file == nullptr) std::abort();
    for (int i = 0; i < k_files + (parts_.packs ? k_packed : 0); ++i) {
      std::fprintf(file, "%s/%s%s\n", data_.c_str(), i < k_files ? "" : "packed/",
                   file_name(i).c_str());
      if (i % 50 == 0)
        std::fprintf(file, "%s/missing%d\n%s/folder\n%s/fifo\n", data_.c_str(), i, data_.c_str(),
                     data_.c_str());
    }
    std::fclose(file);
  }

  Parts parts_;
  std::string data_;
  Board& board_;
  tests::TempDir work_;
};

}  // namespace cube::torture
