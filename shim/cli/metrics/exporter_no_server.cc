// Replaces exporter_server.cc in builds without prometheus-cpp.
#include "shim/cli/metrics/exporter_server.h"

namespace cube::cli {

bool has_exporter_server() { return false; }

std::unique_ptr<ExporterServer> start_exporter_server(
    const std::string& /*address*/, CacheMetrics& /*metrics*/,
    void (* /*tell_of*/)(const std::vector<std::string>&), std::string& why) {
  why =
      "this build has no prometheus-cpp, and answers no scrapes: use --textfile, for "
      "node_exporter's textfile collector";
  return nullptr;
}

}  // namespace cube::cli
