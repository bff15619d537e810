// The plain worker and the subjects beside it, and what it takes to play one sequence in all of them and compare.
// Thread safety: none.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/differential/subject.h"

namespace cube::differ {

// How a subject meets a tree: nobody has read it; this process has; another job has, and its records were kept.
enum class Pass { cold, warm, kept };
std::string_view name_of(Pass pass);

struct Run {
  Pass pass = Pass::cold;
  Sequence sequence;
};

struct Difference {
  std::string plain, subject;  // the lines that differ
  std::string before;          // the lines that do not
};

class Arena {
 public:
  // `names` of subjects; all where it is empty.
  Arena(const std::string& base, const std::vector<std::string>& names);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  struct Contender {
    std::unique_ptr<Subject> subject, warmer;
    bool sees_outsider = false;
    std::vector<Run> history;  // since the worker was started
  };
  std::vector<Contender>& contenders() { return contenders_; }

  // Plays it everywhere it belongs, side by side. The first difference, with who saw it and how.
  struct Finding {
    std::size_t contender = 0;
    std::vector<Run> runs;  // the last one differs, after the others
    Difference difference;
  };
  std::vector<Finding> play(const Sequence& sequence, bool with_outsider, bool is_kept_turn);
  // Plays the runs in a fresh worker, or in the one that is there. Does the last differ?
  bool differs(std::size_t contender, const std::vector<Run>& runs, bool fresh, Difference& difference);
  // Two plain runs that differ tell of an operation that is not deterministic.
  bool is_deterministic(const Sequence& sequence, Difference& difference);
  std::size_t runs() const { return runs_; }

 private:
  Tree fresh_tree(const Subject& subject);
  void send(Contender& contender, Pass pass, const Sequence& sequence, Tree& tree);
  std::string play_plain(const Sequence& sequence);
  void restart(Contender& contender);

  std::string base_;
  std::unique_ptr<Subject> plain_;
  std::vector<Contender> contenders_;
  std::size_t trees_ = 0, runs_ = 0;
};

}  // namespace cube::differ
