#include "bench/calls/micro/file_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <stdexcept>

namespace cube::bench {
namespace fs = std::filesystem;

namespace {

// Used instead of std::shuffle, whose order depends on the standard library.
std::uint64_t next_random(std::uint64_t& state) {
  std::uint64_t z = (state += 0x9e3779b97f4a7c15ULL);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

}  // namespace

FileSet FileSet::list(const std::string& directory, std::size_t limit, const std::string& names) {
  const std::string& from = names.empty() ? directory : names;
  FileSet set;
  for (const auto& entry : fs::recursive_directory_iterator(from)) {
    if (!entry.is_regular_file() || entry.path().filename().string().starts_with('.')) continue;
    set.files_.push_back(
        {directory + entry.path().string().substr(from.size()), entry.file_size()});
  }
  if (set.files_.empty()) throw std::runtime_error(fmt::format("{}: no files to read", directory));
  std::ranges::sort(set.files_, {}, &File::path);
  if (limit != 0 && limit < set.files_.size()) set.files_.resize(limit);
  for (const File& file : set.files_) {
    set.bytes_ += file.size;
    set.largest_ = std::max(set.largest_, file.size);
  }
  return set;
}

std::vector<std::uint32_t> FileSet::shuffled(std::uint64_t seed) const {
  std::vector<std::uint32_t> order(files_.size());
  std::iota(order.begin(), order.end(), 0U);
  for (std::size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[next_random(seed) % i]);
  return order;
}

}  // namespace cube::bench
