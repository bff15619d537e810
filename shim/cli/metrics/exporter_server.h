// Answers the scrapes of Prometheus by HTTP, with prometheus-cpp. A build without prometheus-cpp
// uses exporter_no_server.cc. Thread safety: one thread starts and ends the server, which answers
// in its own threads.
#pragma once

#include <memory>
#include <string>

#include "shim/cli/metrics/metrics.h"

namespace cube::cli {

class ExporterServer {
 public:
  virtual ~ExporterServer() = default;
  // The port on which the server listens. If the address has port 0, the kernel chooses the port.
  virtual int port() const = 0;
};

// False in a build without prometheus-cpp.
bool has_exporter_server();
// On failure, returns null and sets `why`. `metrics` must outlive the server. If collect() reports
// that a cache cannot be read, the server passes the message to `tell_of`.
std::unique_ptr<ExporterServer> start_exporter_server(
    const std::string& address, CacheMetrics& metrics,
    void (*tell_of)(const std::vector<std::string>&), std::string& why);

}  // namespace cube::cli
