// Delta debugging: finds a short list that still fails, by leaving out smaller and smaller parts.
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "tests/differential/op.h"

namespace cube::differ {

template <typename T>
std::vector<T> shrink(std::vector<T> items,
                      const std::function<bool(const std::vector<T>&)>& fails) {
  for (std::size_t part = std::max<std::size_t>(items.size() / 2, 1); part >= 1;) {
    bool is_shorter = false;
    for (std::size_t at = 0; at < items.size();) {
      std::vector<T> rest(items.begin(), items.begin() + static_cast<std::ptrdiff_t>(at));
      rest.insert(rest.end(),
                  items.begin() + static_cast<std::ptrdiff_t>(std::min(at + part, items.size())),
                  items.end());
      if (fails(rest)) {
        items = std::move(rest);
        is_shorter = true;
      } else {
        at += part;
      }
    }
    if (part == 1 && !is_shorter) break;
    part = std::max<std::size_t>(std::min(part / 2, items.size()), 1);
  }
  return items;
}

// Sets the arguments that do not matter to 0.
inline Sequence plainer(Sequence sequence, const std::function<bool(const Sequence&)>& fails) {
  for (std::size_t i = 0; i < sequence.size(); ++i) {
    for (std::size_t j = 0; j < sequence[i].a.size(); ++j) {
      const std::int64_t before = sequence[i].a[j];
      if (before == 0) continue;
      sequence[i].a[j] = 0;
      if (!fails(sequence)) sequence[i].a[j] = before;
    }
  }
  return sequence;
}

}  // namespace cube::differ
