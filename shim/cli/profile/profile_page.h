// A profile as one HTML page that needs nothing else: patterns, flame graph, time line, latencies,
// call sites. Its text and script are profile_page.html. Thread safety: pure.
#pragma once

#include <string>
#include <string_view>

namespace cube::cli {

// `json`: profile_as_json.
std::string profile_as_page(std::string_view json);

}  // namespace cube::cli
