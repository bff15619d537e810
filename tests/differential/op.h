// A sequence of file operations as data. The generator makes it, the player runs it, and a case
// contains it as text.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cube::differ {

class Player;
using Arguments = std::array<std::int64_t, 6>;

struct Op {
  std::size_t kind = 0;
  Arguments a{};
  bool operator==(const Op&) const = default;
};
using Sequence = std::vector<Op>;

// The kind of tree for which a sequence is made, which also selects the subjects that play it.
//   usual     the subject may change the tree
//   outsider  so may a process without the library; only subjects that revalidate at each open
//             promise to see that
//   packed    the tree lies in a pack; the prefix is an empty directory, and paths start above it
//   entered   the tree lies in a pack; the prefix has its directories, too, and paths start in the
//             tree
enum class Kind { usual, outsider, packed, entered };
inline bool is_of_pack(Kind kind) { return kind == Kind::packed || kind == Kind::entered; }

struct OpKind {
  std::string_view name;
  char group;
  unsigned weight;
  std::string_view arguments;
  void (*play)(Player&, const Arguments&);
};
const std::vector<OpKind>& op_kinds();
// Returns the index of the operation with this name, or op_kinds().size() if there is none.
std::size_t kind_named(std::string_view name);

std::string to_text(const Op& op);
std::string to_text(const Sequence& sequence);
std::optional<Op> parse_op(std::string_view line);

}  // namespace cube::differ
