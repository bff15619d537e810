// The one door of cache/: opens a covered file by asking the tiers in order and says what came of it.
// The way of an open: find in RAM -> (miss) one fetch for the node -> publish -> Pin; or a kernel fd, where the file
// cannot be cached; or the origin's error.
// Invariants: what a Pin shows is what the origin held at the recorded size and mtime, as far as CUBESHIM_CONSISTENCY
// asks for it; a file that is open for writing on this node is not cached.
// Thread safety: all of it. A hit allocates nothing, takes no lock and is async-signal-safe.
#pragma once

#include <string>
#include <string_view>

#include "cache/base/config.h"
#include "cache/origin.h"
#include "cache/ram/ram_tier.h"
#include "cache/single_flight.h"

namespace cube::cache {

struct OpenRequest {
  std::string_view key;        // absolute, normalised path of the file
  const char* path = nullptr;  // the same with a terminating zero; the origin is asked by it
  int flags = O_RDONLY;        // the program's
  // Called before the origin is opened, for the program may get that very fd.
  void (*before_kernel_open)() = [] {};
};

// Exactly one of pin, kernel_fd and error is set.
struct OpenOutcome {
  Pin pin;
  int kernel_fd = -1;
  bool is_directory = false;  // of kernel_fd
  int error = 0;
};

class FileCache {
 public:
  static base::Result<FileCache*> attach(const base::Config& config, const base::ProcessId& job, bool create, std::string& why);

  OpenOutcome open(const OpenRequest& request);
  // A record that is there and fresh, for stat and access. No fetch.
  Pin find(const OpenRequest& request);

  // The same content laid out for mapping, for a record that is not; the new record takes the old one's place.
  base::Result<Pin> make_mappable(const Record& record);

  // The file was changed, by this path (absolute) and of this identity (if known).
  void content_changed(std::string_view key, const FileStat* stat);
  // All below a directory that was renamed, or reached by a link that was.
  void tree_changed(std::string_view directory);
  // From the opening for writing to the last close: nobody on the node caches the file.
  void writing_begins(std::string_view key, const FileStat& stat);
  void writing_ends(const FileStat& stat);

  base::Stats& stats() { return region_->stats(); }
  Region& region() { return *region_; }
  bool knows_device(std::uint64_t device) const { return ram_.knows_device(device); }
  bool is_empty() const { return region_->header().records.load(std::memory_order_relaxed) == 0; }
  // At the end of the process.
  void detach();
  // In a forked child: takes the parent's mappings out of the way, by system calls alone. The object is then dead.
  void abandon();

 private:
  FileCache(Region& region, const base::Config& config);
  bool is_fresh(const Record& record, const char* path);
  OpenOutcome fetch(const OpenRequest& request);
  OpenOutcome open_plain(const OpenRequest& request, base::Counter reason);
  OpenOutcome hand_over(OriginFile&& file, base::Counter reason);
  static std::uint32_t stripe_index(const FileStat& stat);
  WriterStripe& stripe_of(const FileStat& stat);

  Region* region_;
  RamTier ram_;
  SingleFlight flights_;
  std::uint64_t max_file_;
  base::Consistency consistency_;
  std::uint64_t job_start_ns_ = 0;  // wall clock
};

}  // namespace cube::cache
