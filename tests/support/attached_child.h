// Another process that uses a region, for tests of the state that it leaves behind.
#pragma once

#include <type_traits>

#include "tests/support/child.h"
#include "tests/support/test_region.h"

namespace cube::tests {

// Returns a child that is attached, has run `before`, and waits to be killed. `before` reports a
// failure by its status.
template <typename Before>
Child attached_child(const cache::RegionOptions& options, Before&& before) {
  Gate ready;
  Child child([&] {
    cache::Region* const mine = attach(options);
    CHILD_CHECK(mine != nullptr);
    if constexpr (std::is_void_v<decltype(before(*mine))>) {
      before(*mine);
    } else if (const int status = before(*mine); status != 0) {
      return status;
    }
    ready.give();
    return wait_for_death();
  });
  EXPECT_TRUE(ready.take());
  return child;
}

inline Child attached_child(const cache::RegionOptions& options) {
  return attached_child(options, [](cache::Region&) {});
}

}  // namespace cube::tests
