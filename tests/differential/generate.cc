#include "tests/differential/generate.h"

#include <fcntl.h>

#include <cctype>
#include <cstdlib>
#include <random>

#include "tests/differential/tree.h"

namespace cube::differ {
namespace {

// A timer can fire at any point, so about one run in 5,000 differs from its own repetition. Only
// for long runs by hand.
bool with_timers() { return getenv("DIFFER_TIMERS") != nullptr; }

// One seed in eight uses the operations that are checked against a model.
bool is_of_model(std::uint64_t seed) { return seed % 8 == 7; }

class Generator {
 public:
  Generator(std::uint64_t seed, Kind kind)
      : random_(seed * 2654435761U + 17), kind_(kind), model_(is_of_model(seed)) {
    // A sequence uses a few files again and again, and prefers some groups of operations.
    const bool is_large = has_large_files() && chance(80);
    for (auto& favourite : favourites_)
      favourite = entry_of(
          [&](const Entry& e) { return e.is_regular() && (!is_large || e.size > k_max_file); });
    for (const OpKind& kind : op_kinds()) {
      const bool is_left_out =
          (kind.group == 'F') != model_ || (kind.group == 'A' && kind_ != Kind::outsider) ||
          (kind.group == 'T' && !with_timers()) || (is_of_pack(kind_) && !fits_pack(kind.name));
      weights_.push_back(is_left_out ? 0 : kind.weight * group_weight(kind.group));
    }
    pick_ = std::discrete_distribution<std::size_t>(weights_.begin(), weights_.end());
  }

  Sequence make() {
    Sequence sequence;
    const std::int64_t n = 4 + below(model_ ? 200 : 70);
    while (static_cast<std::int64_t>(sequence.size()) < n) {
      Op op;
      op.kind = sequence.size() < 2 ? kind_named(model_ ? "model_open" : "open") : pick_(random_);
      const std::string_view letters = op_kinds()[op.kind].arguments;
      for (std::size_t i = 0; i < letters.size(); ++i) op.a[i] = argument(letters[i]);
      sequence.push_back(op);
    }
    return sequence;
  }

 private:
  // Returns false for calls that a read-only mount answers differently with any arguments
  // (SEMANTICS, Packs).
  bool fits_pack(std::string_view name) const {
    // freopen uses libc's own open, which bypasses the library.
    if (name == "freopen") return false;
    // The kernel answers these calls, and can enter only directories that exist for it.
    if (name == "chdir" || name == "fchdir") return kind_ == Kind::entered;
    // These calls would show the name of a copy in memory, and whether its file system can copy.
    if (name == "fd_link" || name == "copy_file_range") return false;
    // Nothing in a pack can be written.
    return name != "model_write";
  }

  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(n));
  }
  bool chance(std::int64_t percent) { return below(100) < percent; }
  template <std::size_t N>
  std::int64_t one_of(const std::int64_t (&values)[N]) {
    return values[below(N)];
  }

  // Each sequence prefers some groups. The weight of calls that open and read is constant.
  unsigned group_weight(char group) {
    if (group == 'o' || group == 'r' || group == 'F') return 8;
    auto& weight = group_weights_[static_cast<unsigned char>(group)];
    constexpr std::int64_t leanings[] = {30, 30, 1, 3, 8, 8};
    if (weight == 0) weight = static_cast<unsigned>(one_of(leanings));
    return weight;
  }

  template <typename Fits>
  std::int64_t entry_of(Fits fits) {
    while (true) {
      const std::int64_t number = below(static_cast<std::int64_t>(entries().size()));
      if (fits(entries()[static_cast<std::size_t>(number)])) return number;
    }
  }

  std::int64_t open_flags() {
    std::int64_t flags = chance(50) ? O_CLOEXEC : 0;
    const std::int64_t kind = below(100);
    if (kind < 66) return flags;
    if (kind < 76) return flags | O_RDWR | (chance(20) ? O_APPEND : 0) | (chance(15) ? O_TRUNC : 0);
    if (kind < 82)
      return flags | O_WRONLY | (chance(20) ? O_APPEND : 0) | (chance(15) ? O_TRUNC : 0);
    if (kind < 85) return flags | O_CREAT | (chance(50) ? O_RDWR : 0) | (chance(30) ? O_EXCL : 0);
    if (kind < 86) return flags | O_TMPFILE | O_RDWR;
    constexpr std::int64_t others[] = {
        O_PATH,   O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK,          O_NOATIME,   O_SYNC,
        O_APPEND, O_DIRECT,    O_NOCTTY,   O_PATH | O_NOFOLLOW, O_LARGEFILE, O_TRUNC};
    return flags | one_of(others);
  }

  // Returns an offset near the edges of pages, blocks and chunks, and of the files.
  std::int64_t large_offset() {
    constexpr std::int64_t units[] = {4 << 10, 64 << 10, 1 << 20, 2 << 20};
    const std::int64_t size =
        static_cast<std::int64_t>(entries()[static_cast<std::size_t>(favourites_[below(3)])].size);
    if (chance(15)) return size + below(5) - 2;
    if (chance(30) || size == 0) return below(size + 1);
    const std::int64_t unit = one_of(units);
    return below(size / unit + 1) * unit + below(5) - 2;
  }

  std::int64_t argument(char letter) {
    constexpr std::int64_t offsets[] = {
        0,      1,      10,   63,   64,    65,    99,    100,    511,    4095,   4096,
        4097,   5000,   8191, 8192, 32768, 65535, 65536, 100000, 102399, 102400, 102401,
        299999, 300000, -1,   -100, -5000, 20000, 12288, 262144, 16384,  28672};
    constexpr std::int64_t lengths[] = {0,     1,     10,    63,     64,    65,   100,
                                        200,   512,   1000,  4095,   4096,  4097, 8192,
                                        10000, 32768, 65536, 102400, 131072};
    const auto is_file = [](const Entry& e) { return e.is_regular(); };
    switch (letter) {
      case 's': return chance(60) ? below(3) : below(8);
      case 'q': return below(3);
      case 'm': return below(3);
      case 'g': return below(2);
      case 'f': return chance(75) ? favourites_[below(3)] : entry_of(is_file);
      case 'e':
        return chance(50) ? favourites_[below(3)]
                          : below(static_cast<std::int64_t>(entries().size()));
      case 'd':
        return entry_of(
            [](const Entry& e) { return e.type == EntryType::directory || e.name == "ld"; });
      case 'n':
        return chance(70)   ? entry_of([](const Entry& e) { return e.type == EntryType::missing; })
               : chance(60) ? favourites_[below(3)]
                            : below(static_cast<std::int64_t>(entries().size()));
      case 'w': return chance(55) ? 0 : below(14);
      case 'o':
        if (has_large_files() && chance(70)) return large_offset();
        return chance(70) ? one_of(offsets) : below(20000);
      case 'l':
        if (has_large_files() && chance(30))
          return chance(50) ? below(1 << 20) : (below(16) + 1) << 16;
        return chance(80) ? one_of(lengths) : below(9000);
      case 'F': return open_flags();
      case 'b': return below(8);
      default: return below(64);
    }
  }

  std::mt19937_64 random_;
  Kind kind_;
  bool model_;
  unsigned group_weights_[128]{};
  std::int64_t favourites_[3]{};
  std::vector<double> weights_;
  std::discrete_distribution<std::size_t> pick_;
};

}  // namespace

Kind kind_without_packs(std::uint64_t seed) { return seed % 4 == 0 ? Kind::outsider : Kind::usual; }
Kind kind_of_pack(std::uint64_t seed) { return seed / 6 % 2 == 0 ? Kind::packed : Kind::entered; }
Kind kind_of(std::uint64_t seed) {
  return seed % 6 == 1 ? kind_of_pack(seed) : kind_without_packs(seed);
}
bool is_kept_turn(std::uint64_t seed, Kind kind) {
  return is_of_pack(kind) ? seed / 12 % 2 == 1 : seed % 2 == 1;
}
Sequence generate(std::uint64_t seed, Kind kind) { return Generator(seed, kind).make(); }

}  // namespace cube::differ
