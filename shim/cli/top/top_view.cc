#include "shim/cli/top/top_view.h"

#include <algorithm>

#include "shim/cli/top/top_text.h"

namespace cube::cli {
namespace {

constexpr std::size_t k_most_ended = 3;

}  // namespace

void TopView::update(const std::vector<CacheLook>& caches,
                     const std::vector<std::string>& troubles) {
  troubles_ = troubles;
  std::vector<CacheLook> here;
  for (const CacheLook& cache : caches) {
    for (const JobRise& job : cache.jobs) {
      if (!job.is_over) continue;
      std::string line = line_of_ended(job);
      line.pop_back();
      ended_.push_back(line);
      if (ended_.size() > k_most_ended) ended_.pop_front();
    }
    if (!cache.is_gone) here.push_back(cache);
    note_course(cache);
  }
  commands_.clear();
  update_chosen(caches);
  is_waiting_ = here.empty();
  // If there is no cache, the figures of the last cache stay on display.
  if (!here.empty()) caches_ = std::move(here);
}

void TopView::note_course(const CacheLook& cache) {
  constexpr std::size_t k_most_values = 256;
  cache::JobTotals sum;
  for (const JobRise& job : cache.jobs) {
    const auto add = [](auto& to, const auto& from) {
      for (std::size_t i = 0; i < to.size(); ++i) to[i] += from[i];
    };
    add(sum.totals.counters, job.rise.totals.counters);
    add(sum.totals.miss_latency, job.rise.totals.miss_latency);
  }
  Course& course = courses_[cache.name];
  const auto keep = [](GaugeHistory& history, bool is_known, double value) {
    history.push_back(is_known ? std::optional(value) : std::nullopt);
    if (history.size() > k_most_values) history.pop_front();
  };
  keep(course.hit_ratio, sum.requests() != 0, sum.hit_rate());
  keep(course.miss_us, sum.timed_misses() != 0, sum.miss_us(0.5));
}

void TopView::update_chosen(const std::vector<CacheLook>& caches) {
  const auto find = [](const std::vector<JobRise>& in, std::uint32_t pid) {
    return std::find_if(in.begin(), in.end(), [&](const JobRise& rise) { return rise.pid == pid; });
  };
  if (!job_.is_over) {
    job_.is_over = true;
    for (const CacheLook& cache : caches) {
      if (cache.name != job_.cache) continue;
      job_.look = cache;
      job_.look.jobs.clear();
      const auto job = find(cache.jobs, job_.rise.pid);
      if (job == cache.jobs.end()) continue;
      job_.rise = *job;
      job_.is_over = job->is_over || cache.is_gone;
    }
  }
  const auto process = find(job_.rise.processes, process_.rise.pid);
  if (process != job_.rise.processes.end()) process_.rise = *process;
  process_.is_over = job_.is_over || process == job_.rise.processes.end();
}

std::vector<TopView::Row> TopView::rows() const {
  std::vector<Row> rows;
  if (page_ == Page::job) {
    for (const JobRise& process : job_.rise.processes) rows.push_back({job_.cache, ' ', &process});
  } else {
    for (std::size_t i = 0; i < caches_.size(); ++i) {
      for (const JobRise& job : caches_[i].jobs)
        rows.push_back(
            {caches_[i].name, caches_.size() == 1 ? ' ' : static_cast<char>('a' + i % 26), &job});
    }
  }
  const TopColumn& by = columns_of(k_top_sets[set_])[sort_];
  std::stable_sort(rows.begin(), rows.end(), [&](const Row& one, const Row& other) {
    const double a = value_of(by, *one.rise), b = value_of(by, *other.rise);
    return is_reversed_ ? a < b : a > b;
  });
  return rows;
}

std::size_t TopView::chosen(const std::vector<Row>& rows) const {
  const auto at = std::find_if(rows.begin(), rows.end(),
                               [&](const Row& row) { return row.rise->pid == cursor_; });
  return at == rows.end() ? 0 : static_cast<std::size_t>(at - rows.begin());
}

void TopView::move(long by) {
  if (page_ == Page::process || page_ == Page::help) {
    const long to = static_cast<long>(scrolled_) + by;
    scrolled_ = static_cast<std::size_t>(std::max(0L, to));
    return;
  }
  const auto all = rows();
  if (all.empty()) return;
  const long to = static_cast<long>(chosen(all)) + by;
  cursor_ = all[static_cast<std::size_t>(std::clamp(to, 0L, static_cast<long>(all.size()) - 1))]
                .rise->pid;
}

void TopView::look_into() {
  if (page_ == Page::process || page_ == Page::help) return;
  const auto all = rows();
  if (all.empty()) return;
  const Row& row = all[chosen(all)];
  Chosen chosen{row.cache, command_of(row.rise->pid), {}, *row.rise, row.rise->is_over};
  scrolled_ = 0;
  if (page_ == Page::job) {
    process_ = std::move(chosen);
    page_ = Page::process;
    return;
  }
  job_ = std::move(chosen);
  process_ = {};
  page_ = Page::job;
  cursor_ = 0;
  update_chosen(caches_);
}

bool TopView::press(TopKey key) {
  const std::size_t sorts = columns_of(k_top_sets[set_]).size();
  const long page = static_cast<long>(std::max<std::size_t>(shown_rows_, 2)) - 1;
  switch (key) {
    case TopKey::quit: return false;
    case TopKey::up: move(-1); break;
    case TopKey::down: move(1); break;
    case TopKey::page_up: move(-page); break;
    case TopKey::page_down: move(page); break;
    case TopKey::enter: look_into(); break;
    case TopKey::back:
      cursor_ = page_ == Page::process ? process_.rise.pid
                : page_ == Page::job   ? job_.rise.pid
                                       : cursor_;
      page_ = page_ == Page::help ? before_help_ : page_ == Page::process ? Page::job : Page::jobs;
      break;
    case TopKey::next_sort: sort_ = (sort_ + 1) % sorts; break;
    case TopKey::last_sort: sort_ = (sort_ + sorts - 1) % sorts; break;
    case TopKey::reverse: is_reversed_ = !is_reversed_; break;
    case TopKey::next_set:
      set_ = (set_ + 1) % std::size(k_top_sets);
      sort_ = 0;
      break;
    case TopKey::help:
      if (page_ != Page::help) before_help_ = page_;
      page_ = Page::help;
      scrolled_ = 0;
      break;
    case TopKey::none: break;
  }
  return true;
}

}  // namespace cube::cli
