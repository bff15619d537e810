#include "cache/region/mailbox/mailbox.h"

#include <fmt/format.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>

#include "cache/base/clock.h"
#include "cache/base/hash.h"
#include "cache/base/process/interrupting_handlers.h"
#include "cache/base/process/went_out.h"
#include "cache/region/life/process_slots.h"
#include "cache/region/life/robust_lock.h"

namespace cube::cache {
namespace {

enum class MailState : std::uint64_t { free = 0, writing = 1, posted = 2, taken = 3, done = 4 };

// How long others wait for a gateway that one of them has started.
constexpr std::uint64_t k_start_ns = 5'000'000'000;

// MailRow::word.
constexpr std::uint64_t k_number_mask = 0xffffff;
constexpr unsigned k_asker_at = 24, k_error_at = 48, k_state_at = 60;
constexpr std::uint64_t k_asker_mask = 0xffffffULL << k_asker_at, k_error_mask = 0xfff;
constexpr std::uint64_t k_request_mask = k_asker_mask | k_number_mask;

MailState state_of(std::uint64_t word) { return static_cast<MailState>(word >> k_state_at); }
int error_of(std::uint64_t word) { return static_cast<int>(word >> k_error_at & k_error_mask); }
std::uint64_t with_state(std::uint64_t word, MailState state, int error = 0) {
  return (word & k_request_mask) | static_cast<std::uint64_t>(state) << k_state_at |
         (static_cast<std::uint64_t>(error) & k_error_mask) << k_error_at;
}
// The generation, because the slot may be another process's by the time we check.
std::uint64_t asker_bits(const Region& region, std::uint32_t process) {
  const std::uint64_t generation =
      region.process_slot(process).generation.load(std::memory_order_relaxed);
  return ((generation & 0xfff) << 12 | (process + 1)) << k_asker_at;
}
std::uint64_t gateway_word(const Region& region, std::uint32_t process) {
  const std::uint64_t generation =
      region.process_slot(process).generation.load(std::memory_order_relaxed);
  return generation << 32 | (process + 1);
}
// `word`: as gateway_word.
bool is_alive(Region& region, std::uint64_t word) {
  const std::uint32_t slot = static_cast<std::uint32_t>(word) - 1;
  return word != 0 && slot < region.layout().process_slots && gateway_word(region, slot) == word &&
         process_is_alive(region, slot);
}

void wake(MailRow& row) {
  row.news.fetch_add(1, std::memory_order_seq_cst);
  base::sys::futex_wake_all(&row.news);
}

void tell_row_is_free(const Region& region) {
  RegionHeader& header = region.header();
  // seq_cst: either we see the asker that waits, or that asker sees the new count and does not
  // sleep.
  header.mail_freed.fetch_add(1, std::memory_order_seq_cst);
  if (header.mail_waiting.exchange(0, std::memory_order_seq_cst) != 0)
    base::sys::futex_wake_all(&header.mail_freed);
}

// Frees the row if its word is still this one.
bool free_row(const Region& region, std::uint32_t row, std::uint64_t word) {
  if (!region.mail_row(row).word.compare_exchange_strong(word, word & k_number_mask,
                                                         std::memory_order_acq_rel))
    return false;
  tell_row_is_free(region);
  return true;
}

using PartWords = std::array<std::uint64_t, MailRow::k_part_words>;

// MailRow::head.
struct Lengths {
  std::uint16_t prefix = 0, url = 0, below = 0;
  std::size_t sum() const { return std::size_t{prefix} + url + below; }
};
std::uint64_t head_of(const MailQuery& query) {
  return static_cast<std::uint64_t>(query.kind) << 56 | std::uint64_t{query.is_prefetch} << 48 |
         static_cast<std::uint64_t>(query.prefix.size()) << 32 |
         static_cast<std::uint64_t>(query.url.size()) << 16 | query.below.size();
}
Lengths lengths_of(std::uint64_t head) {
  return {static_cast<std::uint16_t>(head >> 32), static_cast<std::uint16_t>(head >> 16),
          static_cast<std::uint16_t>(head)};
}

// Texts lie one after the other, as words. Words are atomic because a row that has changed hands is
// read and written at once; the reader finds that out by the row's word.
class TextWriter {
 public:
  explicit TextWriter(std::atomic<std::uint64_t>* words) : words_(words) {}
  void add(std::string_view text) {
    for (const char c : text) {
      word_ |= static_cast<std::uint64_t>(static_cast<unsigned char>(c)) << 8 * (at_ % 8);
      if (++at_ % 8 == 0) put();
    }
  }
  // Fills up with zeros.
  void end(std::size_t words) {
    for (; at_ < words * 8; at_ = (at_ / 8 + 1) * 8) {
      words_[at_ / 8].store(word_, std::memory_order_relaxed);
      word_ = 0;
    }
  }

 private:
  void put() {
    words_[at_ / 8 - 1].store(word_, std::memory_order_relaxed);
    word_ = 0;
  }
  std::atomic<std::uint64_t>* words_;
  std::uint64_t word_ = 0;
  std::size_t at_ = 0;
};

void read_text(const std::atomic<std::uint64_t>* words, std::size_t at, std::size_t length,
               char* to) {
  for (std::size_t i = 0; i < length; ++i)
    to[i] = static_cast<char>(words[(at + i) / 8].load(std::memory_order_relaxed) >>
                              8 * ((at + i) % 8));
}
std::string text_of(const MailRow& row, std::size_t at, std::size_t length) {
  std::string text(length, '\0');
  read_text(row.text, at, length, text.data());
  return text;
}

// Time that this process has waited. A process that was stopped meanwhile, or a machine that was
// suspended, has waited for one slice only.
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
  // The gateway may take or finish the request at this moment.
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
    if (state_of(word) == MailState::free || row.overdue_ns.load(std::memory_order_relaxed) > now)
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
  // A gateway that still reads the row's former request and sees one of these words also sees that
  // the row has changed hands; pairs with the fence in take.
  std::atomic_thread_fence(std::memory_order_release);
  // Twice the time, so that a row becomes overdue only after its owner has given it up.
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
  // Another process has just started one.
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
    // Another asker has found the row overdue.
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
  return row != nullptr && is_alive(*region_, row->process.load(std::memory_order_relaxed));
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

int Mailbox::become_gateway() {
  RegionHeader& header = region_->header();
  const RobustLock lock(&header.gateway_lock);
  if (!lock) return EEXIST;
  // The lock lets one process at a time change these.
  if (GatewayRow* const former = row_of_gateway(); former != nullptr) {
    if (has_gateway()) return EEXIST;
    former->process.store(0, std::memory_order_relaxed);
  }
  const auto is_free = [&](const GatewayRow& row) {
    return !is_alive(*region_, row.process.load(std::memory_order_relaxed));
  };
  GatewayRow* const row = std::ranges::find_if(header.gateways, is_free);
  if (row == std::end(header.gateways)) return EUSERS;
  // A former gateway that died has left these.
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

std::optional<Mailbox::Request> Mailbox::take() {
  const std::uint32_t rows = region_->layout().mail_rows();
  for (std::uint32_t looked = 0; looked < rows; ++looked) {
    const std::uint32_t i = next_row_;
    next_row_ = (next_row_ + 1) % rows;
    MailRow& row = region_->mail_row(i);
    std::uint64_t word = row.word.load(std::memory_order_acquire);
    const std::uint64_t mine = with_state(word, MailState::taken);
    // If the row changes hands at this moment, its word changes, too.
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
    // The asker may have given the row up, and another one may write to it.
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
  const auto slot = static_cast<std::uint32_t>(ticket.word >> k_asker_at & 0xfff) - 1;
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
  // If the asker gives the row up at this moment, the next one sees a wrong line at worst.
  TextWriter text(row.why);
  text.add(why.substr(0, k_why));
  text.end(MailRow::k_why_words);
  std::uint64_t word = ticket.word;
  // Release: the asker sees what was published; pairs with the acquire in wait.
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
    if (!is_alive(region, row.process.load(std::memory_order_acquire))) continue;
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
