// A chart (SVG) of values over the time of a job. Thread safety: pure functions.
#pragma once

#include <string>
#include <vector>

namespace cube::cli {

struct ChartLine {
  struct Point {
    double seconds = 0, value = 0;
    bool is_joined = false;  // a line joins this point to the previous point
  };
  std::string name;
  std::vector<Point> points;
};

struct Chart {
  std::string title, unit;  // `unit` follows each value: " %"
  double least_top = 0;     // the axis reaches at least this value
  std::vector<ChartLine> lines;
};

std::string chart_svg(const Chart& chart);
// Escapes a string for the text and the attributes of HTML and SVG.
std::string html_text(const std::string& text);

}  // namespace cube::cli
