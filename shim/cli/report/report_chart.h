// A chart of values over the time of a job, as SVG. Thread safety: pure functions.
#pragma once

#include <string>
#include <vector>

namespace cube::cli {

struct ChartLine {
  struct Point {
    double seconds = 0, value = 0;
    bool is_joined = false;  // to the point before
  };
  std::string name;
  std::vector<Point> points;
};

struct Chart {
  std::string title, unit;  // the unit stands behind each value: " %"
  double least_top = 0;     // the axis reaches so far at least
  std::vector<ChartLine> lines;
};

std::string chart_svg(const Chart& chart);
// For text and attributes of HTML and SVG.
std::string html_text(const std::string& text);

}  // namespace cube::cli
