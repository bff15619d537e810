// A mount of the tree with its own timeouts, and a reader of this mount. The reader runs as job
// after job, with one setting of CUBESHIM_CONSISTENCY and one way to keep records from job to job,
// or without the library. Thread safety: none.
#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/preload/freshness/mutator/judge.h"
#include "tests/support/child.h"

namespace cube::mutator {

enum class Store : std::uint8_t { fresh, kept, disk };

struct Setting {
  Promise promise;
  int timeout_s;
  Store store;
  std::string name() const;
};

class Subject {
 public:
  // `base` contains data/, the source of the mount. All other files of the subject are made there.
  Subject(World& world, const Setting& setting, const std::string& base);
  Subject(const Subject&) = delete;
  Subject& operator=(const Subject&) = delete;
  ~Subject();

  const std::string& name() const { return name_; }
  bool is_plain() const { return setting_.promise == Promise::kernel; }
  Judge& judge() { return judge_; }
  // While the mount is held, it answers no request.
  void hold_mount(bool holds) const;
  void begin_job();
  // Waits until the job is over, and adds up its report.
  void end_job();
  void ask(const Ask& ask);
  // Returns false if the reader has died.
  bool take(Answer& answer);
  // Sums of the reports of all jobs, by their names in doc/CONFIG.md.
  const std::map<std::string, double>& totals() const { return totals_; }

 private:
  std::vector<std::string> environment() const;

  const Setting setting_;
  const std::string name_, cache_name_, mount_, directory_;
  Judge judge_;
  tests::Child daemon_, reader_;
  int to_ = -1, from_ = -1;
  std::string unread_;
  std::map<std::string, double> totals_;
};

}  // namespace cube::mutator
