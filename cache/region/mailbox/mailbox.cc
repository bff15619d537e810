#include "cache/region/mailbox/mailbox.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "cache/base/clock.h"
#include "cache/base/process/interrupting_handlers.h"
#include "cache/base/process/went_out.h"
#include "cache/region/mailbox/mail_row.h"

namespace cube::cache {
namespace {

using namespace mail;

// How long processes wait for a gateway that another process has started.
constexpr std::uint64_t k_start_ns = 5'000'000'000;

void tell_row_is_free(const Region& region) {
  RegionHeader& header = region.header();
  // seq_cst: either this exchange sees that an asker waits, or the asker sees the new count and
  // does not sleep.
  header.mail_freed.fetch_add(1, std::memory_order_seq_cst);
  if (header.mail_waiting.exchange(0, std::memory_order_seq_cst) != 0)
    base::sys::futex_wake_all(&header.mail_freed);
}

// Frees the row if its word is still `word`.
bool free_row(const Region& region, std::uint32_t row, std::uint64_t word) {
  if (!region.mail_row(row).word.compare_exchange_strong(word, word & k_number_mask,
                                                         std::memory_order_acq_rel))
    return false;
  tell_row_is_free(region);
  return true;
}

// Measures how long this process has waited. Each count() adds at most one slice. So if the process
// was stopped or the machine was suspended, this time counts as only one slice.
class Waited {
 public:
  explicit Waited(std::uint64_t slice_ns) : slice_ns_(slice_ns), last_ns_(base::monotonic_ns()) {}
  void count() {
    const std::uint64_t now = base::monotonic_ns();
    waited_ns_ += std::min(now - last_ns_, slice_ns_);
    last_ns_ = now;
  }
  void start_again() { waited_ns_ = 0; }
  std::uint64_t ns() const { return waited_ns_; }

 private:
  std::uint64_t slice_ns_, last_ns_, waited_ns_ = 0;
};

}  // namespace

void Mailbox::Post::free() {
  const Region* const region = std::exchange(region_, nullptr);
  if (region == nullptr) return;
  MailRow& row = region->mail_row(ticket_.row);
  std::uint64_t word = row.word.load(std::memory_order_acquire);
  // Repeats the swap, because the gateway may take or finish the request in the meantime.
  while (((word ^ ticket_.word) & k_request_mask) == 0 && state_of(word) != MailState::free &&
         !free_row(*region, ticket_.row, word))
    word = row.word.load(std::memory_order_acquire);
}

std::optional<MailTicket> Mailbox::claim_row() const {
  const std::uint64_t owner = asker_bits(*region_, region_->own_slot());
  for (std::uint32_t i = 0; i < region_->layout().mail_rows(); ++i) {
    MailRow& row = region_->mail_row(i);
    std::uint64_t word = row.word.load(std::memory_order_relaxed);
    if (state_of(word) != MailState::free) continue;
    const std::uint64_t mine = with_state(owner | ((word + 1) & k_number_mask), MailState::writing);
    if (row.word.compare_exchange_strong(word, mine, std::memory_order_acq_rel))
      return MailTicket{i, mine};
  }
  return std::nullopt;
}

bool Mailbox::free_overdue_rows() const {
  const std::uint64_t now = base::coarse_monotonic_ns();
  bool has_freed = false;
  for (std::uint32_t i = 0; i < region_->layout().mail_rows(); ++i) {
    const MailRow& row = region_->mail_row(i);
    const std::uint64_t word = row.word.load(std::memory_order_acquire);
    const MailState state = state_of(word);
    // While an asker writes a row, overdue_ns is still that of the row's previous request.
    if (state == MailState::free || state == MailState::writing ||
        row.overdue_ns.load(std::memory_order_relaxed) > now)
      continue;
    has_freed = free_row(*region_, i, word) || has_freed;
  }
  return has_freed;
}

std::optional<MailTicket> Mailbox::await_row(const Patience& patience) const {
  RegionHeader& header = region_->header();
  Waited waited(patience.look_again_ns);
  while (true) {
    if (const auto ticket = claim_row()) return ticket;
    if (free_overdue_rows()) continue;
    const std::uint32_t freed = header.mail_freed.load(std::memory_order_seq_cst);
    header.mail_waiting.store(1, std::memory_order_seq_cst);
    if (const auto ticket = claim_row()) return ticket;
    waited.count();
    if (waited.ns() >= patience.longest_ns) return std::nullopt;
    base::sys::futex_wait(&header.mail_freed, freed, patience.look_again_ns);
  }
}

int Mailbox::post(const MailQuery& query, const Patience& patience, Post& post) const {
  if (query.prefix.size() + query.url.size() + query.below.size() > MailRow::k_words * 8)
    return ENAMETOOLONG;
  const auto ticket = await_row(patience);
  if (!ticket) return ETIMEDOUT;
  RegionHeader& header = region_->header();
  MailRow& row = region_->mail_row(ticket->row);
  // A gateway may still be reading the previous request of this row. If the gateway sees a word
  // that this function stores, the gateway also sees that the row has another owner. Pairs with the
  // fence in take.
  std::atomic_thread_fence(std::memory_order_release);
  // Twice the patience, so that the row becomes overdue only after its owner has given up.
  row.overdue_ns.store(base::coarse_monotonic_ns() + 2 * patience.longest_ns,
                       std::memory_order_relaxed);
  row.head.store(head_of(query), std::memory_order_relaxed);
  row.since_ns.store(query.since_ns, std::memory_order_relaxed);
  row.store.store(store_, std::memory_order_relaxed);
  row.why[0].store(0, std::memory_order_relaxed);
  const auto part = std::bit_cast<PartWords>(query.part);
  for (std::size_t i = 0; i < part.size(); ++i)
    row.part[i].store(part[i], std::memory_order_relaxed);
  TextWriter text(row.text);
  text.add(query.prefix);
  text.add(query.url);
  text.add(query.below);
  text.end((lengths_of(head_of(query)).sum() + 7) / 8);
  post = Post(region_, *ticket);
  std::uint64_t mine = ticket->word;
  // Release: pairs with the acquire in take.
  if (!row.word.compare_exchange_strong(mine, with_state(mine, MailState::posted),
                                        std::memory_order_acq_rel))
    return ETIMEDOUT;
  header.mail_news.fetch_add(1, std::memory_order_seq_cst);
  base::sys::futex_wake_all(&header.mail_news);
  return 0;
}

GatewayRow* Mailbox::row_of_gateway() const {
  for (GatewayRow& row : region_->header().gateways) {
    // Acquire: pairs with the release in become_gateway.
    if (row.process.load(std::memory_order_acquire) != 0 &&
        row.store.load(std::memory_order_relaxed) == store_)
      return &row;
  }
  return nullptr;
}

std::atomic<std::uint64_t>& Mailbox::start_due_ns() const {
  return region_->header().gateways[store_ % RegionHeader::k_gateways].due_ns;
}

int Mailbox::need_gateway(Start start) const {
  if (has_gateway()) return 0;
  auto& due_ns = start_due_ns();
  const std::uint64_t now = base::coarse_monotonic_ns();
  std::uint64_t due = due_ns.load(std::memory_order_relaxed);
  // Another process has just started a gateway, so this process must not start one.
  if (now < due ||
      !due_ns.compare_exchange_strong(due, now + k_start_ns, std::memory_order_relaxed))
    return 0;
  const int error = start();
  if (error != 0) due_ns.store(0, std::memory_order_relaxed);
  return error;
}

int Mailbox::wait(const MailTicket& ticket, Start start, const Patience& patience) const {
  MailRow& row = region_->mail_row(ticket.row);
  Waited waited(patience.look_again_ns);
  std::uint32_t seen = row.news.load(std::memory_order_seq_cst);
  bool is_to_check = row_of_gateway() == nullptr;
  while (true) {
    const std::uint64_t word = row.word.load(std::memory_order_acquire);
    // Another asker has found the row overdue and freed it.
    if (((word ^ ticket.word) & k_request_mask) != 0 || state_of(word) == MailState::free)
      return ETIMEDOUT;
    if (state_of(word) == MailState::done) return error_of(word);
    if (const int error = is_to_check ? need_gateway(start) : 0; error != 0) return error;
    if (waited.ns() >= patience.longest_ns) return ETIMEDOUT;
    base::note_way_out();
    const long slept = base::sys::futex_wait(&row.news, seen, patience.look_again_ns);
    is_to_check = slept == -ETIMEDOUT;
    if (slept == -EINTR && patience.ends_on_signal && base::handlers_interrupt_calls())
      return EINTR;
    waited.count();
    const std::uint32_t news = row.news.load(std::memory_order_seq_cst);
    if (news == seen) continue;
    seen = news;
    waited.start_again();
    row.overdue_ns.store(base::coarse_monotonic_ns() + 2 * patience.longest_ns,
                         std::memory_order_relaxed);
  }
}

int Mailbox::ask(const MailQuery& query, Start start, const Patience& patience, Post& post) {
  const int error = this->post(query, patience, post);
  return error != 0 ? error : wait(post.ticket(), start, patience);
}

std::string_view Mailbox::why(const Post& post, char* to) const {
  if (post.region_ == nullptr) return {};
  read_text(region_->mail_row(post.ticket_.row).why, 0, k_why, to);
  return {to, strnlen(to, k_why)};
}

bool Mailbox::has_why(const Post& post) const {
  return post.region_ != nullptr &&
         region_->mail_row(post.ticket_.row).why[0].load(std::memory_order_relaxed) != 0;
}

bool Mailbox::is_to_be_told(int error) const {
  GatewayRow* const row = row_of_gateway();
  const std::uint32_t bit = 1U << (static_cast<unsigned>(error) % 32);
  return row == nullptr || (row->told.fetch_or(bit, std::memory_order_relaxed) & bit) == 0;
}

bool Mailbox::has_gateway() const {
  const GatewayRow* const row = row_of_gateway();
  return row != nullptr && gateway_is_alive(*region_, row->process.load(std::memory_order_relaxed));
}

void forget_mail_of(Region& region, std::uint32_t process) {
  const std::uint64_t owner = asker_bits(region, process);
  for (std::uint32_t i = 0; i < region.layout().mail_rows(); ++i) {
    const std::uint64_t word = region.mail_row(i).word.load(std::memory_order_acquire);
    if (state_of(word) != MailState::free && (word & k_asker_mask) == owner)
      free_row(region, i, word);
  }
  const std::uint64_t gateway = gateway_word(region, process);
  for (GatewayRow& row : region.header().gateways) {
    std::uint64_t word = gateway;
    row.process.compare_exchange_strong(word, 0, std::memory_order_acq_rel);
  }
}

}  // namespace cube::cache
