// The copy desk keeps finished copies of objects, which are kernel files, until their askers
// collect them over the gateway's Unix socket. It serves the socket in its own thread. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "cache/base/unique_fd.h"
#include "cache/bucket/copy_socket.h"
#include "cache/region/mailbox/mailbox.h"

namespace cube::prefetch {

class CopyDesk {
 public:
  // `listener` comes from listen_for_copies(). `mailbox` must outlive this object.
  CopyDesk(const cache::Mailbox& mailbox, base::UniqueFd listener);
  ~CopyDesk();
  CopyDesk(const CopyDesk&) = delete;
  CopyDesk& operator=(const CopyDesk&) = delete;

  // All askers of an object share its file. Call this before Mailbox::finish.
  void add(const cache::MailTicket& ticket, std::shared_ptr<const base::UniqueFd> file);
  // Drops the copies that no asker will collect.
  void drop_unwanted();

 private:
  void serve();
  std::shared_ptr<const base::UniqueFd> take(const cache::MailTicket& ticket);

  struct Copy {
    cache::MailTicket ticket;
    std::shared_ptr<const base::UniqueFd> file;
  };

  const cache::Mailbox& mailbox_;
  base::UniqueFd listener_, stop_;
  std::mutex mutex_;
  std::map<std::uint32_t, Copy> copies_;  // by the row of the ticket
  std::thread thread_;
};

}  // namespace cube::prefetch
