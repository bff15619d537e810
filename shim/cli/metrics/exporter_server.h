// Answers Prometheus' scrapes by HTTP, with prometheus-cpp. A build without that library has none
// (exporter_no_server.cc). Thread safety: made and ended by one thread; the threads that answer are
// its own.
#pragma once

#include <memory>
#include <string>

#include "shim/cli/metrics/metrics.h"

namespace cube::cli {

class ExporterServer {
 public:
  virtual ~ExporterServer() = default;
  // The port that the kernel has chosen, where it was asked to.
  virtual int port() const = 0;
};

// Is there any in this build?
bool has_exporter_server();
// Null: `why` says why not. `metrics` must outlive it. `tell_of` gets what collect() says of caches
// that cannot be read.
std::unique_ptr<ExporterServer> start_exporter_server(
    const std::string& address, CacheMetrics& metrics,
    void (*tell_of)(const std::vector<std::string>&), std::string& why);

}  // namespace cube::cli
