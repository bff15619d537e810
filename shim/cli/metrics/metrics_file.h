// A file of metrics for node_exporter's textfile collector. Readers find the old file or the new
// one, never a part. Thread safety: one thread.
#pragma once

#include <string>
#include <string_view>

namespace cube::cli {

// Writes a temporary file in the same directory and renames it. Returns why it failed, or an empty
// string on success.
std::string write_metrics_file(const std::string& path, std::string_view text);

}  // namespace cube::cli
