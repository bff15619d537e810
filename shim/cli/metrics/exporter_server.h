// Answers Prometheus' scrapes by HTTP, with prometheus-cpp. A build without that library uses
// exporter_no_server.cc. Thread safety: one thread starts and ends it; it answers with threads of
// its own.
#pragma once

#include <memory>
#include <string>

#include "shim/cli/metrics/metrics.h"

namespace cube::cli {

class ExporterServer {
 public:
  virtual ~ExporterServer() = default;
  // The port that the server listens on, chosen by the kernel if the address had port 0.
  virtual int port() const = 0;
};

// False in a build without prometheus-cpp.
bool has_exporter_server();
// Returns null on failure; `why` says why. `metrics` must outlive the server. `tell_of` gets the
// messages of collect() about caches that cannot be read.
std::unique_ptr<ExporterServer> start_exporter_server(
    const std::string& address, CacheMetrics& metrics,
    void (*tell_of)(const std::vector<std::string>&), std::string& why);

}  // namespace cube::cli
