// One job of a preload test. It has a data set under a prefix and its own cache name, and runs
// programs with the library preloaded. At the end of the job, the region must not exist any more.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "tests/support/preload_content.h"
#include "tests/support/temp_dir.h"

namespace cube::preload {

struct Outcome {
  int status = -1;  // exit status, or -signal
  std::string out, err;
};

inline void expect_well(const Outcome& o) { EXPECT_EQ(o.status, 0) << o.out << o.err; }

class Job {
 public:
  explicit Job(int files = k_files);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  std::map<std::string, std::string> env;
  bool checks_region = true;

  const std::string& data() const { return data_; }
  std::string file(int number) const { return data_ + "/f" + std::to_string(number); }
  std::string path(const std::string& name) const { return dir_ / name; }
  const std::string& name() const { return name_; }
  std::string region() const;

  // Waits for the program's end, and kills it after a minute.
  Outcome run(const std::vector<std::string>& command) const;
  Outcome helper(const std::vector<std::string>& arguments) const;
  Outcome python(const std::string& script) const;
  // Returns a number from the last report, such as "hits.ram" or "misses"; -1 if the report has no
  // such field, -2 if there is no report.
  double report(const std::string& field) const;
  std::string report_text() const;

 private:
  tests::TempDir dir_;
  std::string data_, name_;
};

std::string read_file(const std::string& path);
bool exists(const std::string& path);
std::string library_path();
std::string helper_path();

}  // namespace cube::preload
