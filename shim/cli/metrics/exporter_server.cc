#include "shim/cli/metrics/exporter_server.h"

#include <prometheus/collectable.h>
#include <prometheus/exposer.h>
#include <prometheus/metric_family.h>

#include <fmt/core.h>

#include <exception>
#include <vector>

namespace cube::cli {
namespace {

// A client that is slow or silent occupies a thread for this long.
constexpr const char *k_answering_threads = "16", *k_client_patience_ms = "2000";

prometheus::MetricFamily converted(const MetricFamily& family) {
  prometheus::MetricFamily result;
  result.name = family.name;
  result.help = family.help;
  result.type = family.kind == MetricKind::counter ? prometheus::MetricType::Counter
                : family.kind == MetricKind::gauge ? prometheus::MetricType::Gauge
                                                   : prometheus::MetricType::Histogram;
  for (const MetricSample& sample : family.samples) {
    prometheus::ClientMetric metric;
    for (const auto& [name, value] : sample.labels) metric.label.push_back({name, value});
    metric.counter.value = metric.gauge.value = sample.value;
    metric.histogram.sample_count = sample.count;
    metric.histogram.sample_sum = sample.sum;
    for (const auto& bucket : sample.buckets)
      metric.histogram.bucket.push_back({bucket.count, bucket.bound});
    result.metric.push_back(std::move(metric));
  }
  return result;
}

// The library calls this at each scrape.
class Collector : public prometheus::Collectable {
 public:
  Collector(CacheMetrics& metrics, void (*tell_of)(const std::vector<std::string>&))
      : metrics_(&metrics), tell_of_(tell_of) {}

  // The caller is a thread of the server's C code, which no exception may reach.
  std::vector<prometheus::MetricFamily> Collect() const noexcept override {
    try {
      std::vector<std::string> troubles;
      std::vector<prometheus::MetricFamily> result;
      for (const MetricFamily& family : metrics_->collect(troubles))
        result.push_back(converted(family));
      tell_of_(troubles);
      return result;
    } catch (const std::exception&) {
      return {};  // no memory
    }
  }

 private:
  CacheMetrics* metrics_;
  void (*tell_of_)(const std::vector<std::string>&);
};

class Server : public ExporterServer {
 public:
  Server(const std::string& address, CacheMetrics& metrics,
         void (*tell_of)(const std::vector<std::string>&))
      : collector_(std::make_shared<Collector>(metrics, tell_of)),
        exposer_(std::vector<std::string>{"listening_ports", address, "num_threads",
                                          k_answering_threads, "request_timeout_ms",
                                          k_client_patience_ms}) {
    exposer_.RegisterCollectable(collector_);
  }
  int port() const override {
    const std::vector<int> ports = exposer_.GetListeningPorts();
    return ports.empty() ? 0 : ports.front();
  }

 private:
  // It must outlive the exposer's threads.
  std::shared_ptr<Collector> collector_;
  prometheus::Exposer exposer_;
};

}  // namespace

bool has_exporter_server() { return true; }

std::unique_ptr<ExporterServer> start_exporter_server(
    const std::string& address, CacheMetrics& metrics,
    void (*tell_of)(const std::vector<std::string>&), std::string& why) {
  try {
    return std::make_unique<Server>(address, metrics, tell_of);
  } catch (const std::exception&) {
    // The library does not say why it failed. The address was free a moment ago.
    why = fmt::format(
        "cannot listen on {}: {}", address,
        address.starts_with('[')
            ? "the HTTP server of this build (civetweb) has no IPv6: listen on an IPv4 address"
            : "the port was taken meanwhile");
    return nullptr;
  }
}

}  // namespace cube::cli
