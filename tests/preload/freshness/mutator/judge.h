// Judges whether the promise of a mode permits an answer. The answer must be the state of one
// moment that is not too long ago. The permitted age has two parts: the time for which the kernel
// keeps names and stats on such a mount, and the age that doc/SEMANTICS.md allows the library. The
// second part is zero without the library, so a plain reader serves as a test of the judge. Thread
// safety: none.
#pragma once

#include <map>
#include <set>
#include <string>

#include "tests/preload/freshness/mutator/answer.h"
#include "tests/preload/freshness/mutator/places.h"

namespace cube::mutator {

enum class Promise : std::uint8_t { kernel, open, ttl_1, immutable };

class Judge {
 public:
  Judge(World& world, Promise promise, int timeout_s)
      : world_(world), promise_(promise), timeout_s_(timeout_s) {}

  // After this call, an answer must not show any state that had ended before `now`.
  void job_begins(std::int64_t now);
  // Returns an empty string if the answer is permitted. `slack_ns`: by how much the kernel's own
  // clocks can start later.
  std::string verdict(const Ask& ask, const Answer& answer, std::int64_t slack_ns);
  std::int64_t job_begin() const { return job_begin_; }
  bool has_kept(std::uint64_t slot) const { return kept_.contains(slot); }
  // Returns the states of the path, for the report of a failure.
  std::string history(const Ask& ask, const Answer& answer) const;

 private:
  struct Window {
    Since names;
    std::int64_t content = 0, attributes = 0, listing = 0, end = 0;
    std::int64_t kernel_ns = 0;  // how long the kernel may keep a name or a stat
  };
  struct Kept {
    std::set<Object*> objects{};
    Window opened;
  };
  struct Seen {
    Object* object = nullptr;
    std::size_t version = 0;
    Object* directory = nullptr;
    std::string name;
    std::size_t entry = 0;  // in the directory's timeline of the name
  };

  Window window_of(const Answer& answer, std::int64_t slack_ns) const;
  std::string judge_path(const Ask& ask, const Answer& answer, const Window& window);
  std::string judge_kept(const Ask& ask, const Answer& answer, const Window& window);
  std::string judge_listing(const Ask& ask, const Answer& answer, const Window& window);
  static std::string judge_error(const Ask& ask, const Answer& answer,
                                 const std::vector<Place>& places);
  std::string judge_data(const Ask& ask, const Answer& answer, const Window& window,
                         const std::vector<Place>& places);
  std::string judge_progress(const Ask& ask, const Place& place, std::size_t version,
                             const Window& window);
  bool is_kernels_cut(const Object& file, const Ask& ask, const Answer& answer,
                      std::int64_t kernel_ns) const;
  bool is_mixture(const Object& file, std::uint64_t first, const Runs& runs, std::int64_t from,
                  std::int64_t until) const;
  static bool has_attributes(const Object& object, const Attributes& seen, std::int64_t from,
                             std::int64_t until);
  std::string origin_of(const Answer& answer) const;

  World& world_;
  const Promise promise_;
  const int timeout_s_;
  std::int64_t job_begin_ = 0;
  std::map<std::uint64_t, Kept> kept_;
  std::map<std::string, Seen> seen_;
};

}  // namespace cube::mutator
