#include "prefetch/order/refusals.h"

#include <fmt/core.h>

#include <cstring>

#include "cache/base/error_text.h"
#include "cache/base/log.h"

namespace cube::prefetch {
namespace {

constexpr std::string_view k_what[k_refusals] = {
    "outside CUBESHIM_PREFIXES",
    "missing",
    "not regular files",
    "longer than PATH_MAX allows",
    "unreadable",
    "excluded",
    "not understood",
    "without such a range",
};
constexpr std::size_t k_example = 400;

}  // namespace

std::string_view Refusals::name_of(Refusal reason) {
  return k_what[static_cast<std::size_t>(reason)];
}

void Refusals::count(Refusal reason, std::string_view path, std::uint64_t line, int error) {
  Row& row = rows_[static_cast<std::size_t>(reason)];
  if (row.count++ != 0) return;
  row.line = line;
  row.error = error;
  row.first = path.substr(0, k_example);
  if (path.size() > k_example) row.first += "...";
}

std::string Refusals::text(Refusal reason) const {
  const Row& row = rows_[static_cast<std::size_t>(reason)];
  if (row.count == 0) return {};
  const bool is_one = row.count == 1;
  std::string_view name = name_of(reason);
  if (is_one && reason == Refusal::not_a_file) name = "not a regular file";
  std::string text = fmt::format("{} {} {}, the first is {}", row.count,
                                 is_one ? "entry is" : "entries are", name, row.first);
  if (row.line != 0) text += fmt::format(" (line {})", row.line);
  if (row.error != 0) text += fmt::format(": {}", base::text_of_error(row.error));
  return text;
}

void Refusals::log(std::string_view list) const {
  for (std::size_t i = 0; i < k_refusals; ++i) {
    const auto reason = static_cast<Refusal>(i);
    if (of(reason) == 0) continue;
    base::log(reason == Refusal::excluded ? base::LogLevel::info : base::LogLevel::warn,
              "prefetch list {}: {}", list, text(reason));
  }
}

}  // namespace cube::prefetch
