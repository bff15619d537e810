#include "shim/cli/profile/profile_page.h"

#include <profile_page_html.h>

namespace cube::cli {

std::string profile_as_page(std::string_view json) {
  constexpr std::string_view k_mark = "{{PROFILE}}", k_page = k_profile_page_html;
  constexpr std::size_t k_at = k_page.find(k_mark);
  static_assert(k_at != std::string_view::npos, "the page has a place for the data");
  std::string page(k_page.substr(0, k_at));
  // In JSON, '<' occurs only in strings. Every '<' is escaped, because a name such as "</script>"
  // would otherwise end the data.
  for (const char c : json) page += c == '<' ? std::string("\\u003c") : std::string(1, c);
  page += k_page.substr(k_at + k_mark.size());
  return page;
}

}  // namespace cube::cli
