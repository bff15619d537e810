// A file of metrics for node_exporter's textfile collector. Readers see the complete old file or
// the complete new file. Thread safety: one thread.
#pragma once

#include <string>
#include <string_view>

namespace cube::cli {

// Writes a temporary file in the same directory and renames it. Returns why that failed, or an
// empty string.
std::string write_metrics_file(const std::string& path, std::string_view text);

}  // namespace cube::cli
