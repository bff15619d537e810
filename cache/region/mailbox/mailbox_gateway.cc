// Mailbox: the functions for the gateway.
#include <fmt/format.h>
#include <sys/un.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <utility>

#include "cache/base/hash.h"
#include "cache/region/life/robust_lock.h"
#include "cache/region/mailbox/mail_row.h"

namespace cube::cache {
namespace {

using namespace mail;

void wake(MailRow& row) {
  row.news.fetch_add(1, std::memory_order_seq_cst);
  base::sys::futex_wake_all(&row.news);
}

std::string text_of(const MailRow& row, std::size_t at, std::size_t length) {
  std::string text(length, '\0');
  read_text(row.text, at, length, text.data());
  return text;
}

}  // namespace

int Mailbox::become_gateway() {
  RegionHeader& header = region_->header();
  const RobustLock lock(&header.gateway_lock);
  if (!lock) return EEXIST;
  // While this process holds the lock, no other process changes the gateway rows.
  if (GatewayRow* const former = row_of_gateway(); former != nullptr) {
    if (has_gateway()) return EEXIST;
    former->process.store(0, std::memory_order_relaxed);
  }
  const auto is_free = [&](const GatewayRow& row) {
    return !gateway_is_alive(*region_, row.process.load(std::memory_order_relaxed));
  };
  GatewayRow* const row = std::ranges::find_if(header.gateways, is_free);
  if (row == std::end(header.gateways)) return EUSERS;
  // A previous gateway may have taken requests and died. Posts these requests again.
  for (std::uint32_t i = 0; i < region_->layout().mail_rows(); ++i) {
    MailRow& mail = region_->mail_row(i);
    std::uint64_t word = mail.word.load(std::memory_order_acquire);
    if (state_of(word) == MailState::taken && mail.store.load(std::memory_order_relaxed) == store_)
      mail.word.compare_exchange_strong(word, with_state(word, MailState::posted),
                                        std::memory_order_relaxed);
  }
  row->process.store(0, std::memory_order_relaxed);
  row->store.store(store_, std::memory_order_release);
  row->told.store(0, std::memory_order_relaxed);
  own_ = row;
  publish({});
  std::uint32_t socket = 0;
  base::sys::raw(SYS_getrandom, base::sys::arg(&socket), sizeof socket, 0);
  row->socket.store(socket, std::memory_order_relaxed);
  row->process.store(gateway_word(*region_, region_->own_slot()), std::memory_order_release);
  start_due_ns().store(0, std::memory_order_relaxed);
  return 0;
}

void Mailbox::resign() {
  if (GatewayRow* const row = std::exchange(own_, nullptr); row != nullptr)
    row->process.store(0, std::memory_order_release);
}

void Mailbox::publish(const GatewayFigures& figures) const {
  own_->answers.store(figures.answers, std::memory_order_relaxed);
  own_->retries.store(figures.retries, std::memory_order_relaxed);
  own_->bytes.store(figures.bytes, std::memory_order_relaxed);
  own_->first_byte_ns.store(figures.first_byte_ns, std::memory_order_relaxed);
  own_->in_flight.store(figures.in_flight, std::memory_order_relaxed);
  own_->most_in_flight.store(figures.most_in_flight, std::memory_order_relaxed);
}

std::string Mailbox::socket_path() const {
  const GatewayRow* const row = row_of_gateway();
  const std::uint32_t socket = row == nullptr ? 0 : row->socket.load(std::memory_order_relaxed);
  return socket_path_of(region_->path(), fmt::format("{:08x}", socket));
}

std::string Mailbox::socket_path_of(const std::string& region_path, std::string_view socket) {
  const auto path_with = [&](const std::string& region) {
    return Region::socket_path_of(fmt::format("{}.gateway-{}", region, socket));
  };
  std::string path = path_with(region_path);
  if (path.size() < sizeof(sockaddr_un::sun_path)) return path;
  const std::string hash = fmt::format("{:016x}", base::hash_path(region_path));
  return path_with(Region::path_of(region_path.substr(0, region_path.rfind('/')), hash));
}

std::optional<Mailbox::Request> Mailbox::take() {
  const std::uint32_t rows = region_->layout().mail_rows();
  for (std::uint32_t looked = 0; looked < rows; ++looked) {
    const std::uint32_t i = next_row_;
    next_row_ = (next_row_ + 1) % rows;
    MailRow& row = region_->mail_row(i);
    std::uint64_t word = row.word.load(std::memory_order_acquire);
    const std::uint64_t mine = with_state(word, MailState::taken);
    // If the row changes hands during this read, its word also changes.
    if (state_of(word) != MailState::posted ||
        row.store.load(std::memory_order_relaxed) != store_ ||
        !row.word.compare_exchange_strong(word, mine, std::memory_order_acq_rel))
      continue;
    const std::uint64_t head = row.head.load(std::memory_order_relaxed);
    const Lengths lengths = lengths_of(head);
    Request request;
    request.kind = static_cast<MailKind>(head >> 56);
    request.is_prefetch = (head >> 48 & 1) != 0;
    request.since_ns = row.since_ns.load(std::memory_order_relaxed);
    PartWords part;
    for (std::size_t j = 0; j < part.size(); ++j)
      part[j] = row.part[j].load(std::memory_order_relaxed);
    request.part = std::bit_cast<MailPart>(part);
    request.ticket = {i, mine};
    // If the lengths are wrong, the asker has given up the row, and another asker is writing to it.
    if (lengths.sum() > MailRow::k_words * 8) continue;
    request.prefix = text_of(row, 0, lengths.prefix);
    request.url = text_of(row, lengths.prefix, lengths.url);
    request.below = text_of(row, std::size_t{lengths.prefix} + lengths.url, lengths.below);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (row.word.load(std::memory_order_relaxed) == mine) return request;
  }
  return std::nullopt;
}

bool Mailbox::is_wanted(const MailTicket& ticket) const {
  if (ticket.row >= region_->layout().mail_rows()) return false;
  const std::uint64_t word = region_->mail_row(ticket.row).word.load(std::memory_order_acquire);
  return ((word ^ ticket.word) & k_request_mask) == 0 &&
         (state_of(word) == MailState::taken || state_of(word) == MailState::done);
}

base::Stats& Mailbox::stats_of(const MailTicket& ticket) const {
  const std::uint32_t slot = slot_of_word(static_cast<std::uint32_t>(ticket.word >> k_asker_at));
  return slot < region_->layout().process_slots &&
                 asker_bits(*region_, slot) == (ticket.word & k_asker_mask)
             ? region_->process_slot(slot).stats
             : region_->stats();
}

void Mailbox::tell_progress(const MailTicket& ticket) const {
  if (is_wanted(ticket)) wake(region_->mail_row(ticket.row));
}

bool Mailbox::finish(const MailTicket& ticket, int error, std::string_view why) const {
  MailRow& row = region_->mail_row(ticket.row);
  if (!is_wanted(ticket)) return false;
  // If the asker gives up the row during this write, at worst the next asker sees a wrong message.
  TextWriter text(row.why);
  text.add(why.substr(0, k_why));
  text.end(MailRow::k_why_words);
  std::uint64_t word = ticket.word;
  // Release: the asker sees everything that this process has published so far. Pairs with the
  // acquire in wait.
  if (!row.word.compare_exchange_strong(word, with_state(word, MailState::done, error),
                                        std::memory_order_acq_rel))
    return false;
  wake(row);
  return true;
}

void Mailbox::wait_for_news(std::uint32_t seen, std::uint64_t at_most_ns) const {
  base::sys::futex_wait(&region_->header().mail_news, seen, at_most_ns);
}

GatewayFigures figures_of_gateways(Region& region, std::uint32_t& gateways) {
  GatewayFigures sum;
  gateways = 0;
  for (const GatewayRow& row : region.header().gateways) {
    if (!gateway_is_alive(region, row.process.load(std::memory_order_acquire))) continue;
    ++gateways;
    sum.answers += row.answers.load(std::memory_order_relaxed);
    sum.retries += row.retries.load(std::memory_order_relaxed);
    sum.bytes += row.bytes.load(std::memory_order_relaxed);
    sum.first_byte_ns += row.first_byte_ns.load(std::memory_order_relaxed);
    sum.in_flight += row.in_flight.load(std::memory_order_relaxed);
    sum.most_in_flight += row.most_in_flight.load(std::memory_order_relaxed);
  }
  return sum;
}

}  // namespace cube::cache
