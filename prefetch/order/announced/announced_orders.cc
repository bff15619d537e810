#include "prefetch/order/announced/announced_orders.h"

#include <algorithm>

#include "cache/base/path.h"
#include "prefetch/order/list_paths.h"

namespace cube::prefetch {

bool AnnouncedOrders::add(std::size_t slot) {
  const std::lock_guard lock(mutex_);
  // A client that has said goodbye can still have paths to hand on.
  if (clients_[slot] != nullptr) return false;
  clients_[slot] = std::make_unique<Client>();
  // The number is never 0, because reader 0 belongs to sources that have only one order.
  clients_[slot]->reader = static_cast<std::uint32_t>(++uses_[slot] * k_clients + slot);
  return true;
}

const char* AnnouncedOrders::take(std::size_t slot, std::string_view message) {
  const std::lock_guard lock(mutex_);
  Client& client = *clients_[slot];
  const std::uint64_t before = client.order.epochs_left();
  const char* const wrong = client.order.take(message);
  if (client.order.epochs_left() != before) client.passed = client.given;
  return wrong;
}

void AnnouncedOrders::remove(std::size_t slot) {
  const std::lock_guard lock(mutex_);
  auto& client = clients_[slot];
  if (client == nullptr) return;
  client->has_gone = true;
  if (!client->order.said_bye()) killed_[slot] = client->reader;
  if (!client->order.said_bye() || client->order.is_empty()) client.reset();
}

AnnouncedOrders::AnnouncedState AnnouncedOrders::state(std::size_t slot) const {
  const std::lock_guard lock(mutex_);
  const auto& client = clients_[slot];
  if (client == nullptr) return {};
  const AnnouncedOrder& order = client->order;
  return {order.said_hello(), order.is_full(), !order.is_empty(),
          order.has_news(),   order.rank(),    order.news()};
}

void AnnouncedOrders::told(std::size_t slot, const TakenMessage& news) {
  const std::lock_guard lock(mutex_);
  const auto& client = clients_[slot];
  // In the meantime, next() might have taken more paths.
  if (client != nullptr && client->order.news().sequence == news.sequence) client->order.told();
}

bool AnnouncedOrders::has_become_ready() {
  const std::lock_guard lock(mutex_);
  const bool is_ready = std::any_of(clients_.begin(), clients_.end(), [](const auto& client) {
    return client != nullptr && !client->order.is_empty();
  });
  if (!is_waiting_ || !is_ready) return false;
  is_waiting_ = false;
  return true;
}

bool AnnouncedOrders::next(PlannedFile& file) {
  const std::lock_guard lock(mutex_);
  for (Client* client = least_ahead(); client != nullptr; client = least_ahead()) {
    const bool is_accepted = accept(*client, file);
    if (client->has_gone && client->order.is_empty()) clients_[last_].reset();
    if (is_accepted) return true;
  }
  is_waiting_ = true;
  return false;
}

std::optional<std::size_t> AnnouncedOrders::slot_of_least_ahead() const {
  std::optional<std::size_t> best;
  const std::size_t after = last_ + 1;
  for (std::size_t i = 0; i < k_clients; ++i) {
    const std::size_t slot = (after + i) % k_clients;
    const Client* const client = clients_[slot].get();
    if (client == nullptr || client->order.is_empty()) continue;
    if (!best || client->ahead < clients_[*best]->ahead) best = slot;
  }
  return best;
}

AnnouncedOrders::Client* AnnouncedOrders::least_ahead() {
  const auto best = slot_of_least_ahead();
  if (!best) return nullptr;
  last_ = *best;
  return clients_[last_].get();
}

std::optional<std::uint32_t> AnnouncedOrders::next_reader() const {
  const std::lock_guard lock(mutex_);
  const auto best = slot_of_least_ahead();
  return best ? std::optional(clients_[*best]->reader) : std::nullopt;
}

bool AnnouncedOrders::accept(Client& client, PlannedFile& file) {
  const std::string_view path = client.order.next();
  std::string whole;
  if (path.front() != '/' && !client.order.has_base()) {
    refusals_.count(Refusal::bad_line, path);
    return false;
  }
  if (fold_path(client.order.base(), path, whole) != Folded::ok) {
    refusals_.count(Refusal::too_long, path);
    return false;
  }
  if (std::none_of(prefixes_.begin(), prefixes_.end(), [&](const std::string& prefix) {
        return base::is_at_or_below(whole, prefix);
      })) {
    refusals_.count(Refusal::outside, whole);
    return false;
  }
  file.path = std::move(whole);
  file.reader = client.reader;
  file.must_stay = false;
  file.sequence = client.given++;
  ++client.ahead;
  return true;
}

void AnnouncedOrders::settled(std::uint32_t reader, std::uint32_t files) {
  const std::lock_guard lock(mutex_);
  Client* const client = clients_[reader % k_clients].get();
  if (client == nullptr || client->reader != reader) return;
  client->ahead -= std::min<std::uint64_t>(client->ahead, files);
}

std::uint64_t AnnouncedOrders::passed(std::uint32_t reader) const {
  const std::lock_guard lock(mutex_);
  const std::size_t slot = reader % k_clients;
  const auto& client = clients_[slot];
  if (client != nullptr && client->reader == reader) return client->passed;
  return killed_[slot] == reader ? UINT64_MAX : 0;
}

void AnnouncedOrders::refuse(Refusal reason, const std::string& path) {
  const std::lock_guard lock(mutex_);
  refusals_.count(reason, path);
}

std::vector<std::string> AnnouncedOrders::take_refusals() {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < k_refusals; ++i) {
    const auto reason = static_cast<Refusal>(i);
    if (is_refusal_told_[i] || refusals_.of(reason) == 0) continue;
    is_refusal_told_[i] = true;
    lines.push_back("announced by the job: " + refusals_.text(reason));
  }
  return lines;
}

}  // namespace cube::prefetch
