// The names of all prefixes that a process answers itself. Thread safety: nothing changes after it
// was made; make() allocates.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "cache/metadata/metadata.h"
#include "cache/origin/origins.h"

namespace cube::cache {

class AllMetadata {
 public:
  // The origins must outlive this. Null: the kernel has all names, as nearly always.
  static std::unique_ptr<AllMetadata> make(const Origins& origins);

  // Null: the path is the kernel's to answer.
  const Metadata* of(std::string_view key) const {
    for (const auto& names : all_) {
      if (names->covers(key)) return names.get();
    }
    return nullptr;
  }

 private:
  std::vector<std::unique_ptr<const Metadata>> all_;
};

}  // namespace cube::cache
