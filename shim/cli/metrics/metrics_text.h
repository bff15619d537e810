// Metrics in Prometheus' text format, which node_exporter's textfile collector reads. Thread
// safety: pure function.
#pragma once

#include <string>
#include <vector>

#include "shim/cli/metrics/metrics.h"

namespace cube::cli {

std::string metrics_text(const std::vector<MetricFamily>& families);

}  // namespace cube::cli
