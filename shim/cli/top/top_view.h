// The pages of `cubeshim top` and the meaning of its keys. TopTerminal reads the keys and draws the
// lines. The first page shows the caches and their jobs. The second page shows the processes of a
// job, and the third page shows the figures of a process. The lines fit a terminal of any size.
// Thread safety: one thread.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "shim/cli/top/top_gauge.h"
#include "shim/cli/top/top_table.h"

namespace cube::cli {

enum class TopKey {
  none,
  quit,
  up,
  down,
  page_up,
  page_down,
  enter,
  back,
  next_sort,
  last_sort,
  reverse,
  next_set,
  help
};

class TopView {
 public:
  // `place` describes the caches that are shown.
  TopView(std::string place, unsigned interval) : place_(std::move(place)), interval_(interval) {}

  void update(const std::vector<CacheLook>& caches, const std::vector<std::string>& troubles);
  // Handles the key. Returns false if the key ends the command.
  bool press(TopKey key);
  // Returns at most `rows` lines, each of at most `columns` characters.
  std::vector<ScreenLine> lines(std::size_t rows, std::size_t columns);

 private:
  using Look = ScreenLine::Look;
  enum class Page { jobs, job, process, help };
  // The job or process that the user has opened. The job or process remains on display after its
  // end.
  struct Chosen {
    std::string cache, command;
    CacheLook look;  // without its jobs
    JobRise rise;
    bool is_over = true;  // also true if the user has opened nothing yet
  };
  struct Row {
    std::string cache;  // its name
    char mark = ' ';    // identifies the cache, if there are several
    const JobRise* rise = nullptr;
  };

  // The history of all jobs of a cache together, with one value for each update.
  struct Course {
    GaugeHistory hit_ratio, miss_us;
  };

  void note_course(const CacheLook& cache);
  void add_gauges(std::vector<ScreenLine>& lines, const CacheLook& cache,
                  std::size_t columns) const;
  const std::string& command_of_row(const JobRise& rise);
  std::vector<Row> rows() const;
  // The index of the row under the cursor; 0 if there is none.
  std::size_t chosen(const std::vector<Row>& rows) const;
  void move(long by);
  void look_into();
  void update_chosen(const std::vector<CacheLook>& caches);
  std::string title() const;
  std::vector<ScreenLine> above(std::size_t most, std::size_t columns) const;
  std::vector<ScreenLine> below(std::size_t most) const;
  std::vector<ScreenLine> body(std::size_t room, std::size_t columns);
  std::vector<ScreenLine> table(std::size_t room, std::size_t columns);
  std::vector<std::string> text_of_job(std::size_t columns) const;
  std::vector<std::string> text_of_process() const;

  const std::string place_;
  const unsigned interval_;
  std::vector<CacheLook> caches_;  // the last caches that existed
  std::vector<std::string> troubles_;
  std::deque<std::string> ended_;
  bool is_waiting_ = true;
  Page page_ = Page::jobs, before_help_ = Page::jobs;
  std::size_t set_ = 0, sort_ = 0;  // an index of k_top_sets; an index of the columns of that set
  bool is_reversed_ = false;
  std::uint32_t cursor_ = 0;  // a pid
  std::size_t scrolled_ = 0;  // the number of lines scrolled
  std::size_t shown_rows_ = 1;
  Chosen job_, process_;
  std::map<std::string, Course> courses_;          // the key is the name of the cache
  std::map<std::uint32_t, std::string> commands_;  // by pid
};

}  // namespace cube::cli
