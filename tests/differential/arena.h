// Plays a sequence in the plain worker and in the subjects, and compares the results. Thread
// safety: none.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/differential/subject.h"

namespace cube::differ {

// The state of a tree before a sequence. cold: no process has read the tree. warm: this process has
// read it. kept: another job has read it, and the records of that job were kept.
enum class Pass { cold, warm, kept };
std::string_view name_of(Pass pass);

struct Run {
  Pass pass = Pass::cold;
  Sequence sequence;
  Kind kind = Kind::usual;
};

struct Difference {
  std::string plain, subject;  // the lines that differ
  std::string before;          // the equal lines before these
};

class Arena {
 public:
  // `names`: the subjects to play; empty: all.
  Arena(const std::string& base, const std::vector<std::string>& names);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  struct Contender {
    std::unique_ptr<Subject> subject, warmer;
    bool sees_outsider = false;
    std::vector<Run> history;                   // since the worker was started
    std::array<unsigned, 2> packed_trees = {};  // used trees of each kind in the pack
    bool has_pack() const { return !subject->settings().pack.empty(); }
    bool plays(Kind kind) const {
      return is_of_pack(kind) == has_pack() && (kind != Kind::outsider || sees_outsider) &&
             (kind != Kind::usual || !sees_outsider);
    }
  };
  std::vector<Contender>& contenders() { return contenders_; }

  // Plays the sequence at the same time in all subjects for which it is meant. Returns the first
  // difference, with the subject and the pass.
  struct Finding {
    std::size_t contender = 0;
    std::vector<Run> runs;  // played one after another; the last run differs
    Difference difference;
  };
  std::vector<Finding> play(const Sequence& sequence, Kind kind, bool is_kept_turn);
  // The kind of sequence for this seed, among those that the subjects can play.
  Kind kind_of(std::uint64_t seed) const;
  // Plays the runs in a new worker or in the existing worker. Returns true if the last run differs.
  bool differs(std::size_t contender, const std::vector<Run>& runs, bool fresh,
               Difference& difference);
  // Plays the run two times in the plain worker. If the results differ, an operation is not
  // deterministic.
  bool is_deterministic(const Run& run, Difference& difference);
  std::size_t runs() const { return runs_; }
  // Ends all workers, so that the totals of the subjects are complete.
  void stop();

 private:
  Tree fresh_tree(const Subject& subject, Kind kind, unsigned number);
  Tree packed_tree(unsigned number, Kind kind) const;
  bool make_pack();  // false: comparing is not possible here
  void send(Contender& contender, const Run& run, Tree& tree);
  std::string play_plain(const Run& run);
  void restart(Contender& contender);

  std::string base_;
  std::unique_ptr<Subject> plain_, plain_mounted_;
  std::vector<Contender> contenders_;
  std::string pack_;  // with many equal trees
  std::size_t trees_ = 0, runs_ = 0, restarts_ = 0;
};

}  // namespace cube::differ
