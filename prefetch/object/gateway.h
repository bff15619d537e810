// The gateway: the node's only process that talks to object stores. It takes requests from the
// mailbox and answers them. Objects, parts of large objects and listings are put into RAM; copies
// are sent over a socket. Requests for the same object or listing share one transfer; s3/client.cc
// decides when a transfer begins. If the gateway is killed, at any instruction, only its
// unpublished work is lost, and the next gateway takes the open requests again. Thread safety: one
// thread calls run(). The copy desk and the wait for news have their own threads.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cache/base/unique_fd.h"
#include "cache/bucket/bucket_mount.h"
#include "cache/file_cache.h"
#include "cache/region/mailbox/mailbox.h"
#include "prefetch/object/block_fetch.h"
#include "prefetch/object/copy_desk.h"
#include "prefetch/object/s3/client.h"
#include "prefetch/object/s3/uri.h"

namespace cube::prefetch {

struct GatewayOptions {
  std::string disk_dir;         // for large copies; empty if there is none
  std::string who;              // the owner of the keys, for messages
  std::uint64_t linger_ns = 0;  // how long the gateway stays after all other processes have left
};

class Gateway {
 public:
  // All objects passed by reference must outlive the gateway. `mailbox` belongs to this thread.
  Gateway(cache::FileCache& cache, cache::Mailbox& mailbox, s3::Client& client, CopyDesk& desk,
          GatewayOptions options)
      : cache_(cache),
        mailbox_(mailbox),
        client_(client),
        desk_(desk),
        options_(std::move(options)) {}

  // Serves requests until `is_to_end` returns true or no process needs the gateway. Calls
  // `is_to_end` about once a second.
  void run(const std::function<bool()>& is_to_end);

 private:
  using Request = cache::Mailbox::Request;
  struct Work;
  struct ListingWork;
  using WorkPointer = std::shared_ptr<Work>;

  void take_requests();
  void take(Request request);
  void start(const WorkPointer& work);
  void fetch_object(const WorkPointer& work);
  void fetch_copy(const WorkPointer& work);
  void fetch_blocks(const Request& request, const s3::ObjectName& name);
  std::shared_ptr<BlockFetch> object_of(const Request& request, const s3::ObjectName& name);
  // Counts the requests of this transfer for the job of the asker.
  void count(const cache::MailTicket& ticket, cache::MailKind kind,
             const s3::Outcome& outcome) const;
  void publish_figures() const;
  void answer(const cache::MailTicket& ticket, int error, const std::string& trouble) const;
  void check_object(const WorkPointer& work);
  void note_etag(const s3::ObjectName& name, const std::string& etag);
  void fetch_listing(const WorkPointer& work);
  void fetch_page(const std::shared_ptr<ListingWork>& listing);
  void finish(const WorkPointer& work, int error, const std::string& trouble);
  void tell_progress(Work& work) const;
  // Returns whether the gateway should continue.
  bool look_around();

  cache::FileCache& cache_;
  cache::Mailbox& mailbox_;
  s3::Client& client_;
  CopyDesk& desk_;
  const GatewayOptions options_;
  base::UniqueFd region_fd_;
  std::map<std::string, WorkPointer> works_;
  std::map<std::string, std::shared_ptr<BlockFetch>> objects_;  // objects that are read in blocks
  // The ETags of objects that were fetched or checked, for conditional requests.
  std::unordered_map<std::string, std::string> etags_;
  std::optional<std::uint32_t> taken_news_;  // Mailbox::news() as of the last read of the rows
  std::uint64_t alone_since_ns_ = 0, looked_around_ns_ = 0;
};

}  // namespace cube::prefetch
