// Counts the entries of a list that will not be fetched, for each reason, and keeps the first
// example of each reason. Logs one line per reason. Thread safety: one thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace cube::prefetch {

enum class Refusal : std::uint8_t {
  outside,
  missing,
  not_a_file,
  too_long,
  unreadable,
  excluded,
  bad_line,
  bad_range
};
inline constexpr std::size_t k_refusals = 8;

class Refusals {
 public:
  struct Row {
    std::uint64_t count = 0, line = 0;  // `line` is the line of `first`
    int error = 0;
    std::string first;
  };
  // `line` is the line in the list, or 0 if unknown. `error` is an errno or 0.
  void count(Refusal reason, std::string_view path, std::uint64_t line = 0, int error = 0);
  std::uint64_t of(Refusal reason) const { return row(reason).count; }
  const Row& row(Refusal reason) const { return rows_[static_cast<std::size_t>(reason)]; }
  // The name of the reason, such as "missing".
  static std::string_view name_of(Refusal reason);
  // "3 paths are outside CUBESHIM_PREFIXES, the first is /a (line 7)"; empty if there are none.
  std::string text(Refusal reason) const;
  // Logs one line for each reason that has occurred. Entries that the list itself excludes are
  // logged only at info level.
  void log(std::string_view list) const;

 private:
  std::array<Row, k_refusals> rows_;
};

}  // namespace cube::prefetch
