// Ways to read a set of files in a given order: a plain reader with threads, and the engines of
// prefetch/. Each way checks that it has read all bytes. Thread safety: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "prefetch/engine/engine_choice.h"

namespace cube::bench {

using Paths = std::vector<std::string>;

class Contender {
 public:
  virtual ~Contender() = default;
  // Returns the number of bytes read, or 0 on any error.
  virtual std::uint64_t read_all(const Paths& paths) = 0;
  // The choice that the engine `auto` has made.
  virtual std::string choice() const { return {}; }
};

// Calls open, fstat, read and close in this many threads.
std::unique_ptr<Contender> plain_reader(unsigned threads);
// Null if the engine is refused.
std::unique_ptr<Contender> engine_reader(base::EngineKind choice, unsigned depth, int nice,
                                         std::size_t largest);

}  // namespace cube::bench
