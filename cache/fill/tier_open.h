// An open that a tier answers: one question to the origin, its stat, and one more, an open, unless
// a process with the same rights has opened the file before. An immutable origin is asked nothing.
// Thread safety: an object belongs to one call; any number of them at a time.
#pragma once

#include "cache/fill/cache_parts.h"
#include "cache/fill/open_request.h"

namespace cube::cache {

class TierOpen final : private Tier::Judge {
 public:
  // Before the look at the origin, as any fill. All must outlive this.
  TierOpen(CacheParts& parts, const OpenRequest& request, Lane lane);
  // The whole file, if a tier has it and the origin's stat says that it may be served. True: the
  // outcome is there.
  bool open(OpenOutcome& outcome);

 private:
  using Verdict = Tier::Verdict;
  Verdict judge(const Record& record) override;
  // The record says which origin it is of: nobody need be asked.
  Verdict judge_immutable(const Record& record);
  Verdict judge_mutable(const Record& record);
  Verdict judge_by_stat(const Record& record);
  // May this process open the file of a record that is right? Asks the origin by one open at most.
  bool may_be_opened(const Record& record);
  // The origin's stat of the file.
  void ask(const Record& record);
  // The same, of a look that the node has made before. False: there is none that proves this
  // record.
  bool is_known(const Record& record);

  bool visit(const Tiers& tiers);

  CacheParts& parts_;
  const OpenRequest& request_;
  const Origin& origin_;
  Tier* tier_ = nullptr;  // that is asked now
  bool is_remote_ = false;
  RecordFill fill_;
  bool has_asked_ = false, has_waited_ = false;
  bool is_physical_ = false;
  base::Result<FileStat> stat_ = base::fail(ENOENT);
};

}  // namespace cube::cache
