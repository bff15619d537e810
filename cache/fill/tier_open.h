// An open that a tier may answer. A TierOpen asks the origin for the file's stat. If no process
// with the same rights has opened the file before, the TierOpen also opens the file at the origin.
// An immutable origin is never asked. Thread safety: an object belongs to one call. Several objects
// may exist at the same time.
#pragma once

#include "cache/fill/cache_parts.h"
#include "cache/fill/open_request.h"

namespace cube::cache {

class TierOpen final : private Tier::Judge {
 public:
  // Construct it before the origin is asked, like any fill. The arguments must outlive this object.
  TierOpen(CacheParts& parts, const OpenRequest& request, Lane lane);
  // Reads the whole file from a tier if the origin's stat shows that the tier's record is current.
  // True: `outcome` is set.
  bool open(OpenOutcome& outcome);

 private:
  using Verdict = Tier::Verdict;
  Verdict judge(const Record& record) override;
  // Judges the record by its origin's id. The origin is not asked.
  Verdict judge_immutable(const Record& record);
  Verdict judge_mutable(const Record& record);
  Verdict judge_by_stat(const Record& record);
  // Whether this process may open the file of a valid record. Opens the file at the origin at most
  // once to find out.
  bool may_be_opened(const Record& record);
  // Asks the origin for the file's stat.
  void ask(const Record& record);
  // Uses a stat that a process of the node has got from the origin earlier. False: no earlier stat
  // proves this record.
  bool is_known(const Record& record);

  bool visit(const Tiers& tiers);

  CacheParts& parts_;
  const OpenRequest& request_;
  const Origin& origin_;
  Tier* tier_ = nullptr;  // the tier that is being asked
  bool is_remote_ = false;
  RecordFill fill_;
  bool has_asked_ = false, has_waited_ = false;
  bool is_physical_ = false;
  base::Result<FileStat> stat_ = base::fail(ENOENT);
};

}  // namespace cube::cache
