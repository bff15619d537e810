// One version of a large object, whose blocks the gateway fetches in ranges into the region's
// chunks. Askers of the same bytes share one request. All ranges must be of the version that was
// listed. The first requests compare the ETag of their answer with the listed version; later
// requests also send If-Match. Thread safety: the thread of the client.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cache/bucket/bucket_mount.h"
#include "cache/file_cache.h"
#include "cache/region/mailbox/mailbox.h"
#include "prefetch/object/s3/client.h"
#include "prefetch/object/s3/uri.h"

namespace cube::prefetch {

class BlockFetch : public std::enable_shared_from_this<BlockFetch> {
 public:
  using Finish =
      std::function<void(const cache::MailTicket& ticket, int error, const std::string& trouble)>;

  // `finish` answers an asker. All arguments passed by reference must outlive this object. Returns
  // null if too many objects are in use.
  static std::shared_ptr<BlockFetch> begin(cache::FileCache& cache, const cache::Mailbox& mailbox,
                                           s3::Client& client, const cache::BucketMount& mount,
                                           std::string_view below, s3::ObjectName name,
                                           const cache::ObjectInfo& version, Finish finish);
  ~BlockFetch();
  BlockFetch(const BlockFetch&) = delete;
  BlockFetch& operator=(const BlockFetch&) = delete;

  static std::string text_of_change(const s3::ObjectName& name);
  static std::string text_of_no_ranges(const s3::ObjectName& name);

  void ask(const cache::MailTicket& ticket, const cache::MailPart& part);
  // Empty if no answer has contained the ETag yet, or if it is weak.
  const std::string& etag() const { return etag_; }
  // Copies bytes that are present. Returns false if some of them are not.
  bool copy(std::byte* to, std::uint64_t begin, std::size_t bytes) const;
  bool is_idle() const { return running_.empty() && waiting_.empty(); }
  std::uint64_t used_ns() const { return used_ns_; }

 private:
  struct Waiting {
    cache::MailTicket ticket;
    std::uint64_t begin = 0, end = 0;
  };
  BlockFetch(cache::FileCache& cache, const cache::Mailbox& mailbox, s3::Client& client,
             s3::ObjectName name, const cache::ObjectInfo& version, cache::LargeFile& file,
             Finish finish);
  // Requests the bytes of [begin, end) that are neither present nor being fetched. Returns 0 or an
  // errno. ENOSPC means that there is no room for the rest now.
  int start(std::uint64_t begin, std::uint64_t end, bool is_urgent);
  void start_gap(const std::shared_ptr<cache::LargeFile::Gap>& gap, bool is_urgent);
  int check(const s3::Outcome& head);
  void take(const cache::LargeFile::Gap& gap, bool is_urgent, s3::Outcome& outcome);
  bool is_present(std::uint64_t begin, std::uint64_t end) const;
  void serve_waiting();
  void fail(std::uint64_t begin, std::uint64_t end, int error, const std::string& trouble);

  cache::FileCache& cache_;
  const cache::Mailbox& mailbox_;
  s3::Client& client_;
  const s3::ObjectName name_;
  const cache::ObjectInfo version_;
  cache::LargeFile& file_;
  const Finish finish_;
  // The last asker; its job is charged for the requests.
  cache::MailTicket last_asker_;
  std::string warning_;                             // for the askers of the bytes that arrive next
  std::string etag_;                                // empty: not known yet, or weak
  std::map<std::uint64_t, std::uint64_t> running_;  // ranges being fetched: begin, end
  std::vector<Waiting> waiting_;
  std::uint64_t used_ns_ = 0;
};

}  // namespace cube::prefetch
