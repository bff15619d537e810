// The page of `cubeshim report --html`: one self-contained file. Thread safety: pure functions.
#pragma once

#include <string>
#include <vector>

#include "shim/cli/report/report_file.h"

namespace cube::cli {

std::string report_page(const std::vector<JobReport>& jobs);

}  // namespace cube::cli
