// A tier that keeps nothing, for tests of other tiers and of their callers, which override some of
// its functions. Thread safety: that of the derived class.
#pragma once

#include "cache/tier/tier.h"

namespace cube::tests {

class EmptyTier : public cache::Tier {
 public:
  bool visit(std::string_view, Judge&) override { return false; }
  base::Result<void> offer(std::span<const std::byte>, std::span<const std::uint64_t>) override {
    return {};
  }
  void end_offers() override {}
  void content_changed(std::string_view, const cache::FileStat*) override {}
  void tree_changed() override {}
  base::TierStatus status() const override { return {}; }
  void abandon() override {}

 protected:
  using Tier::Tier;
  ~EmptyTier() = default;
};

}  // namespace cube::tests
