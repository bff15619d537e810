// Receives the bytes of an object in a kernel file for programs. The file is a memfd or, for a
// large object, an unlinked file on the local disk. Thread safety: one thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cache/base/unique_fd.h"
#include "cache/record/file_stat.h"
#include "prefetch/object/s3/whole_object.h"

namespace cube::prefetch {

class CopyFile final : public s3::ObjectSink {
 public:
  // Copies bytes from the region to `to`. Returns false if the region does not have all of them.
  using Present = std::function<bool(std::byte* to, std::uint64_t first, std::size_t bytes)>;
  // Returns the stat of the object with this head.
  using StatOf = std::function<cache::FileStat(const s3::Outcome& head)>;
  // `disk_dir` is the directory for large files; empty if there is none. `note_progress` is called
  // after each range.
  CopyFile(std::string disk_dir, StatOf stat_of, std::function<void()> note_progress,
           Present present);
  ~CopyFile() override;

  int begin(const s3::Outcome& first) override;
  std::byte* room(std::uint64_t first, std::size_t bytes) override;
  bool has(std::uint64_t first, std::size_t bytes) override;
  int take(std::uint64_t first, std::size_t bytes) override;
  const std::byte* kept(std::uint64_t first) override { return at_ + first; }

  // Call after the last range. Gives the file the ETag and the time of `head()`, and returns it.
  // The file is then no longer mapped for writing.
  base::UniqueFd finish();
  const s3::Outcome& head() const { return head_; }

 private:
  int make_file(std::uint64_t size);
  void unmap();

  const std::string disk_dir_;
  const StatOf stat_of_;
  const std::function<void()> note_progress_;
  const Present present_;
  s3::Outcome head_;
  base::UniqueFd file_;
  std::byte* at_ = nullptr;
};

}  // namespace cube::prefetch
