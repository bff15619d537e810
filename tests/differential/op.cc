#include "tests/differential/op.h"

#include <charconv>

namespace cube::differ {

#define DIFFER_OP(name, group, weight, arguments) void op_##name(Player& p, const Arguments& a);
#include "tests/differential/ops.def"
#undef DIFFER_OP

const std::vector<OpKind>& op_kinds() {
  static const std::vector<OpKind> kinds = {
#define DIFFER_OP(name, group, weight, arguments) {#name, group, weight, arguments, op_##name},
#include "tests/differential/ops.def"
#undef DIFFER_OP
  };
  return kinds;
}

std::size_t kind_named(std::string_view name) {
  const auto& kinds = op_kinds();
  std::size_t kind = 0;
  while (kind < kinds.size() && kinds[kind].name != name) ++kind;
  return kind;
}

std::string to_text(const Op& op) {
  const OpKind& kind = op_kinds()[op.kind];
  std::string text(kind.name);
  for (std::size_t i = 0; i < kind.arguments.size(); ++i) text += " " + std::to_string(op.a[i]);
  return text;
}

std::string to_text(const Sequence& sequence) {
  std::string text;
  for (const Op& op : sequence) text += to_text(op) + "\n";
  return text;
}

std::optional<Op> parse_op(std::string_view line) {
  Op op;
  std::size_t end = std::min(line.find(' '), line.size());
  op.kind = kind_named(line.substr(0, end));
  if (op.kind == op_kinds().size()) return std::nullopt;
  for (std::size_t i = 0; i < op.a.size() && end < line.size(); ++i) {
    const char* const from = line.data() + end + 1;
    const auto [next, error] = std::from_chars(from, line.data() + line.size(), op.a[i]);
    if (error != std::errc{}) return std::nullopt;
    end = static_cast<std::size_t>(next - line.data());
  }
  return end == line.size() ? std::optional(op) : std::nullopt;
}

}  // namespace cube::differ
