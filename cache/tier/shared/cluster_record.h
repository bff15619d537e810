// The form in which the cluster stores the record of a file, of a block of a large file, or of a
// listing. Such a record is compact, and its marks are not set. The record contains the path below
// the prefix, and the tags of the job and of the node that have read the file. Thread safety: pure
// functions; nothing is allocated.
#pragma once

#include <climits>
#include <span>

#include "cache/record/record.h"

namespace cube::cache {

// The part of a record before its data (`bytes`), and the number of zeros after the data
// (`padding`).
struct ClusterHead {
  alignas(Record) std::byte bytes[sizeof(Record) + PATH_MAX + k_record_alignment];
  std::size_t size = 0, padding = 0;
};
struct ClusterTags {
  std::uint64_t job = 0;  // 0: no job
  std::uint64_t node = 0;
};
struct ClusterContent {
  RecordKind kind = RecordKind::file;
  std::string_view below_prefix;  // the path, or BlockName::text
  FileStat stat;                  // for a block, the stat of its file
  bool is_physical = false;
  std::uint64_t fetched_ns = 0;  // wall clock
  std::uint64_t rights = 0;      // as Record::rights
  RecordData data;
};
ClusterContent content_for_cluster(const Record& record, std::string_view below_prefix);
void write_cluster_head(const ClusterContent& content, const ClusterTags& tags, ClusterHead& head);

// Whether all users may read the file, or list the directory.
bool is_for_everybody(const FileStat& stat);
// Whether the record may be shared. False if the file is being changed, or may have been changed
// again without a change of its times. If `with_private` is false, also false for a file that some
// users may not read.
bool may_be_shared(const Record& record, bool with_private);

// Returns the record in these bytes. Checks its kind, its path, its hashes, and that it has the
// form that write_cluster_head writes. Null: the record is damaged, or is another record. The
// entries of a listing are not checked here, but by DirectoryData.
Record* check_cluster_value(std::span<std::byte> bytes, RecordKind kind,
                            std::string_view below_prefix);

// Whether both stats belong to the same version of a file. Inode numbers are ignored, because they
// may differ between nodes.
bool is_same_but_inode(const FileStat& a, const FileStat& b);

}  // namespace cube::cache
