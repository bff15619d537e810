// A bucket, as the processes of a job see it. Answers come from the listings and records in the
// region. If one of them is missing, the bucket asks the gateway for it. A listing contains the
// stats of all files in a directory, and costs one request for each 1,000 names. Thread-safe and
// async-signal-safe, except the constructor. Errors are those of a file system. EACCES: the store
// refuses. ETIMEDOUT: the store does not answer. EIO: any other failure. The first error of each
// kind is reported on stderr.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "cache/base/settings/config.h"
#include "cache/base/unique_fd.h"
#include "cache/bucket/bucket_mount.h"
#include "cache/bucket/object_names.h"
#include "cache/region/mailbox/mailbox.h"
#include "cache/region/ram/ram_tier.h"

namespace cube::cache {

// The parts of this process that a bucket uses.
struct BucketRegion {
  Region* region = nullptr;  // null: there is none
  RamTier* ram = nullptr;
  base::Consistency consistency;
  std::uint64_t timeout_ns = 0;
};

class Bucket {
 public:
  Bucket(std::string prefix, std::string url) : mount_(std::move(prefix), std::move(url)) {}
  Bucket(const Bucket&) = delete;
  Bucket& operator=(const Bucket&) = delete;

  // Call each of these two functions once, before any other call. `find` attaches to the region if
  // this process is not yet attached.
  static void use_region(BucketRegion (*find)());
  static void use_start(Mailbox::Start start);

  const BucketMount& mount() const { return mount_; }

  // All keys are absolute paths at or below the prefix.
  base::Result<FileStat> stat(std::string_view key) const;
  // The current stat of an object whose stat was `known` before. In mode `immutable`, calls stat().
  // In the other modes, uses a fresh listing. If there is none, asks the store by a conditional
  // request whether the object is unchanged.
  base::Result<FileStat> revalidate(std::string_view key, const FileStat& known) const;
  // The listing of a directory: a record that contains ObjectNames.
  base::Result<Pin> list(std::string_view key) const;
  // Makes the gateway put the object into RAM, unless RAM already has it with this stat. EFBIG,
  // ENOSPC: the object does not fit into RAM.
  int fetch(std::string_view key, const FileStat& stat) const;
  // Like fetch(), but no program waits for the object. ENOSPC: the object does not fit into RAM, so
  // the gateway did not request it from the store.
  int fetch_ahead(std::string_view key, const FileStat& stat) const;
  // A kernel file with the object's bytes (copy_socket.h). `Version::of_stat`: the object must have
  // this stat.
  enum class Version : bool { any, of_stat };
  base::Result<base::UniqueFd> copy(std::string_view key, const FileStat& stat, int flags,
                                    bool is_prefetch, Version version = Version::any) const;
  // Makes the gateway fetch the bytes [begin, end) of the object into its chunks. The gateway then
  // starts to fetch the bytes up to `ahead_end`. ENOSPC: the chunks have no room. EIO: the object
  // no longer has this stat.
  int fetch_blocks(std::string_view key, const FileStat& stat, std::uint64_t begin,
                   std::uint64_t end, std::uint64_t ahead_end) const;

 private:
  Pin find_listing(const BucketRegion& in, std::string_view directory,
                   std::uint64_t since_ns) const;
  Pin find_object(const BucketRegion& in, std::string_view key, const FileStat& stat) const;
  // Returns ENOENT or ENOTDIR if the nearest listing above the directory shows that the directory
  // does not exist; otherwise 0.
  int error_above(const BucketRegion& in, std::string_view directory, std::uint64_t since_ns) const;
  // Asks the store whether the object still has this stat. Returns 0 if it does, and otherwise
  // ESTALE, ENOENT or another errno.
  int check(const BucketRegion& in, std::string_view key, const FileStat& known) const;
  // The stat of the key in a listing of its parent. ENOENT: the listing does not contain the key.
  base::Result<FileStat> stat_in(const Pin& listing, std::string_view key) const;
  base::Result<Pin> ask_for_listing(const BucketRegion& in, std::string_view directory,
                                    std::uint64_t since_ns) const;
  int ask(const BucketRegion& in, MailKind kind, std::string_view key, std::uint64_t since_ns,
          bool is_prefetch, Mailbox::Post& post, const MailPart& part = {}) const;
  // Whether a request has timed out less than a second ago. If so, requests fail immediately.
  bool has_just_timed_out() const;
  void note_timeout() const;
  void tell(const Mailbox& mailbox, const Mailbox::Post& post, int error) const;

  BucketMount mount_;
  // The time of the last timeout, on the coarse monotonic clock. 0: there was none.
  mutable std::atomic<std::uint64_t> timed_out_ns_{0};
};

}  // namespace cube::cache
