// Packs the objects below an s3:// name, as PackBuilder packs a directory. One listing finds all
// objects. Many objects are fetched at a time and written in the order of a pack. The files have
// the same stats as below a prefix of CUBESHIM_BUCKETS. Thread safety: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cache/bucket/bucket_mount.h"
#include "cache/pack/make/pack_builder.h"
#include "prefetch/object/s3/client.h"
#include "prefetch/object/s3/uri.h"

namespace cube::cli {

class BucketPacker {
 public:
  // `build.root` is the s3:// name, without a trailing slash.
  BucketPacker(s3::Client& client, s3::ObjectName name, const cache::PackBuild& build);
  cache::PackBuilder::End run(std::string& why);
  const cache::PackHeader& header() const { return writer_->header(); }  // valid after run()
  std::uint64_t resumed() const { return resumed_; }
  std::uint64_t objects() const { return rows_.size(); }

 private:
  struct Row {
    std::string path;
    cache::ObjectInfo object;
    bool is_directory = false;  // the marker object of a directory
  };
  struct DirectoryRecord {
    std::string path, listing;
  };
  struct Level {
    std::string path;
    cache::TreeNames names;
    bool is_whole = true;
    // These records are written together, as in PackBuilder.
    std::vector<DirectoryRecord> done;
  };
  struct Fetched;
  // Rows whose objects are fetched together.
  struct Batch {
    std::size_t first = 0, end = 0;
    std::vector<Fetched> fetched;
  };

  bool list(std::string& why);
  void add_page(s3::ListPage& page);
  void sort();
  bool go_to(std::string_view directory);
  bool leave();
  bool write(const DirectoryRecord& record);
  std::size_t end_of_batch(std::size_t first) const;
  // Requests the objects of the batch that begins with this row.
  Batch begin_batch(std::size_t first);
  // Waits for the objects of the batch and writes them.
  bool take_batch(Batch& batch);
  void fetch(const Row& row, Fetched& fetched);
  bool take(const Row& row, Fetched& fetched);
  base::Result<void> add_large(const Row& row);
  cache::FileStat stat_of(const Row& row) const;
  bool is_same(const cache::OldRecord* old, const Row& row) const;
  std::string key_of(const Row& row) const { return directory_ + row.path; }
  bool check(const base::Result<void>& written);

  s3::Client& client_;
  const s3::ObjectName name_;
  const std::string directory_;  // the common beginning of all keys
  const cache::PackBuild build_;
  const cache::BucketMount mount_;
  std::unique_ptr<cache::PackWriter> writer_;
  std::vector<Row> rows_;
  std::vector<Level> levels_;
  std::uint64_t resumed_ = 0;
  std::string why_;
};

}  // namespace cube::cli
