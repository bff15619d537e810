#include "shim/cli/metrics/exporter_server.h"

#include <CivetServer.h>
#include <prometheus/collectable.h>
#include <prometheus/exposer.h>
#include <prometheus/metric_family.h>

#include <fmt/core.h>

#include <exception>
#include <string_view>
#include <vector>

namespace cube::cli {
namespace {

// A slow or silent client occupies one of the threads for this long.
constexpr const char *k_answering_threads = "16", *k_client_patience_ms = "2000";

constexpr std::string_view k_page = R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>cubeshim exporter</title>
<style>
:root { color-scheme: light dark; }
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em; }
</style>
</head>
<body>
<h1>cubeshim exporter</h1>
<p><a href="metrics">Metrics</a> of the caches on this node, for Prometheus.</p>
<p>Version )" CUBESHIM_VERSION R"(</p>
</body>
</html>
)";

// Answers `/`, for people who open the exporter's address in a browser. civetweb calls this for
// each request. The result 0 passes the request on to the metrics.
int answer_with_page(mg_connection* connection) {
  const mg_request_info* const request = mg_get_request_info(connection);
  const std::string_view method = request->request_method;
  if (std::string_view(request->local_uri) != "/" || (method != "GET" && method != "HEAD"))
    return 0;
  constexpr int k_ok = 200;
  const std::string head = fmt::format(
      "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\n"
      "Connection: close\r\n\r\n",
      k_page.size());
  mg_write(connection, head.data(), head.size());
  if (method == "GET") mg_write(connection, k_page.data(), k_page.size());
  return k_ok;
}

struct PageCallbacks : CivetCallbacks {
  PageCallbacks() { begin_request = answer_with_page; }
};

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

// prometheus-cpp calls this at each scrape.
class Collector : public prometheus::Collectable {
 public:
  Collector(CacheMetrics& metrics, void (*tell_of)(const std::vector<std::string>&))
      : metrics_(&metrics), tell_of_(tell_of) {}

  // The C code of the server calls this. No exception may pass through C code.
  std::vector<prometheus::MetricFamily> Collect() const noexcept override {
    try {
      std::vector<std::string> troubles;
      std::vector<prometheus::MetricFamily> result;
      for (const MetricFamily& family : metrics_->collect(troubles))
        result.push_back(converted(family));
      tell_of_(troubles);
      return result;
    } catch (const std::exception&) {
      return {};  // out of memory
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
        exposer_(
            std::vector<std::string>{"listening_ports", address, "num_threads", k_answering_threads,
                                     "request_timeout_ms", k_client_patience_ms},
            &callbacks_) {
    exposer_.RegisterCollectable(collector_);
  }
  int port() const override {
    const std::vector<int> ports = exposer_.GetListeningPorts();
    return ports.empty() ? 0 : ports.front();
  }

 private:
  // collector_ and callbacks_ must outlive the threads of exposer_.
  std::shared_ptr<Collector> collector_;
  const PageCallbacks callbacks_;
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
    // civetweb gives no reason, although the address was free a moment ago.
    why = fmt::format(
        "cannot listen on {}: {}", address,
        address.starts_with('[')
            ? "the HTTP server of this build (civetweb) has no IPv6: listen on an IPv4 address"
            : "the port was taken meanwhile");
    return nullptr;
  }
}

}  // namespace cube::cli
