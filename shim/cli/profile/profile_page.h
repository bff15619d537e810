// A profile as one self-contained HTML page: patterns, flame graph, time line, latencies, call
// sites. Its text and script are in profile_page.html. Thread safety: pure.
#pragma once

#include <string>
#include <string_view>

namespace cube::cli {

// `json` is the result of profile_as_json.
std::string profile_as_page(std::string_view json);

}  // namespace cube::cli
