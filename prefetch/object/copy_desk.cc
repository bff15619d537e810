#include "prefetch/object/copy_desk.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <utility>

namespace cube::prefetch {

CopyDesk::CopyDesk(const cache::Mailbox& mailbox, base::UniqueFd listener)
    : mailbox_(mailbox),
      listener_(std::move(listener)),
      stop_(eventfd(0, EFD_CLOEXEC)),
      thread_([this] { serve(); }) {}

CopyDesk::~CopyDesk() {
  eventfd_write(stop_.get(), 1);
  thread_.join();
}

void CopyDesk::add(const cache::MailTicket& ticket, std::shared_ptr<const base::UniqueFd> file) {
  const std::scoped_lock lock(mutex_);
  copies_[ticket.row] = {ticket, std::move(file)};
}

void CopyDesk::drop_unwanted() {
  const std::scoped_lock lock(mutex_);
  std::erase_if(copies_, [&](const auto& row) { return !mailbox_.is_wanted(row.second.ticket); });
}

// A ticket matches if it names this row and the asker still owns the row. The whole words cannot be
// compared: those of the asker and the gateway differ in their state bits.
std::shared_ptr<const base::UniqueFd> CopyDesk::take(const cache::MailTicket& ticket) {
  const std::scoped_lock lock(mutex_);
  if (!mailbox_.is_wanted(ticket)) return nullptr;
  auto found = copies_.extract(ticket.row);
  return found.empty() ? nullptr : std::move(found.mapped().file);
}

void CopyDesk::serve() {
  for (;;) {
    pollfd wait[] = {{listener_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    if (poll(wait, std::size(wait), -1) < 0) continue;
    if (wait[1].revents != 0) return;
    cache::MailTicket ticket;
    const auto asker = cache::accept_copy(listener_.get(), ticket);
    if (!asker) continue;
    const auto file = take(ticket);
    cache::send_copy(asker->get(), file == nullptr ? -1 : file->get());
  }
}

}  // namespace cube::prefetch
