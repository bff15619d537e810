// Predicts the directories that a program will visit next. The program must visit them in the order
// of the listing or in the order of their names. Thread safety: an object belongs to one thread at
// a time. Its functions allocate.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cache/record/directory_data.h"

namespace cube::cache {

class NextDirectories {
 public:
  static constexpr std::size_t k_most = 16;
  // `to_each`: after() is called for every directory that the program visits. `to_some`: calls for
  // directories that after() has predicted may be missing.
  enum class Comes : std::uint8_t { to_each, to_some };
  explicit NextDirectories(Comes comes = Comes::to_each) : comes_(comes) {}

  // Call it when the program has reached `name`, an entry of the listing of `parent`. Returns the
  // names that the program will probably visit next, in order. The result is empty until the
  // program has followed an order once. Each later result has twice as many names as the previous
  // one, up to k_most.
  std::vector<std::string> after(const std::string& parent, std::string_view name,
                                 const DirectoryData& listing);

 private:
  Comes comes_;
  std::string parent_, last_;
  std::size_t count_ = 0;
};

}  // namespace cube::cache
