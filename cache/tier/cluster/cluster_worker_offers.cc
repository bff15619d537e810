// ClusterClient::Worker: offers records, and asks the servers for their figures. Does both only
// while no program waits.
#include "cache/tier/cluster/cluster_worker.h"
#include "cache/tier/cluster/home_server.h"
#include "cache/tier/cluster/limits/token_bucket.h"

namespace cube::cache {
namespace {

using base::Counter;

constexpr std::uint64_t k_no_offers_ns = 60'000'000'000, k_between_figures_ns = 2'000'000'000;

}  // namespace

void ClusterClient::Worker::end_offer(OfferEnd end) {
  step_ = Step::none;
  source_.end_offer(offer_, end);
}

std::uint64_t ClusterClient::Worker::offer_token() {
  return servers_[offer_server_]->fill.connection.next_token(k_offer_tag);
}

void ClusterClient::Worker::look_for_offer() {
  step_ = Step::looking;
  has_looked_ = true;
  servers_[offer_server_]->filled_ns = now_ns_;
  servers_[offer_server_]->fill.connection.send(
      k_offer_tag, MetaCommand::look(offer_.key.text(), offer_token()));
}

void ClusterClient::Worker::send_offer() {
  step_ = Step::sending;
  ++sendings_;
  servers_[offer_server_]->filled_ns = now_ns_;
  static constexpr char k_end[] = "\r\n";
  const ClusterConnection::Bytes parts[] = {offer_.parts[0], offer_.parts[1], offer_.parts[2],
                                            std::as_bytes(std::span(k_end, 2))};
  const auto command =
      offer_cas_ != 0
          ? MetaCommand::replace(offer_.key.text(), offer_token(), offer_.bytes(), offer_cas_)
          : MetaCommand::add(offer_.key.text(), offer_token(), offer_.bytes());
  servers_[offer_server_]->fill.connection.send(k_offer_tag, command, parts);
}

void ClusterClient::Worker::offer(std::uint64_t now) {
  if (client_.options_.fill_per_second == 0) return;
  if (is_offer_sent() || has_demand_) return;
  if (step_ == Step::none) {
    // Records with a lease are offered immediately, because other nodes may wait for them. All
    // other records are offered only if a processor is idle.
    if (!source_.next(offer_, now, /*only_leased=*/!gate_.is_open(now))) return;
    if (source_.is_leader()) gate_.shut(now);
    step_ = Step::waiting;
    doze_ns_ = k_least_doze_ns;
    offer_server_ = home_of_key(client_.options_.servers, offer_.key.hash());
    offer_began_ns_ = now;
    offer_cas_ = offer_.lease_cas;
    sendings_ = 0;
    has_looked_ = false;
  }
  Lane& lane = servers_[offer_server_]->fill;
  if (offer_.bytes() >= state(offer_server_).too_large) return end_offer(OfferEnd::refused);
  if (!client_.takes_offers(offer_server_, now) || now - offer_began_ns_ >= k_offer_patience_ns)
    return end_offer(OfferEnd::put_off);
  if (!prepare(lane, now) || lane.connection.pending() != 0) return;
  // First asks whether the server already has the record: the previous leader may have offered it,
  // or another node may have read the same file. Asks only if the servers already had some of the
  // last records; otherwise the question would waste a round trip.
  if (step_ == Step::waiting && offer_cas_ == 0 && were_there_ != 0) return look_for_offer();
  step_ = Step::paying;
  if (!TokenBucket::take(client_.options_.rows[offer_server_].free_ns, now, offer_.bytes(),
                         client_.options_.fill_per_second))
    return;
  offer_began_ns_ = now;
  send_offer();
}

bool ClusterClient::Worker::answer_offer(std::size_t server, const MetaAnswer& answer) {
  ServerState& of = state(server);
  base::Stats& stats = *client_.options_.stats;
  const bool is_look = step_ == Step::looking;
  // Before a command reaches the server, another client may add or remove the item. The offer is
  // then sent a second time, but never a third time.
  const bool may_send_again = sendings_ < 2;
  auto end = OfferEnd::accepted;
  switch (answer.kind) {
    case Kind::done:
      if (is_look || !has_looked_) note_there(is_look);
      if (!is_look) {
        stats.count(Counter::cluster_offered);
        of.is_full = false;
        break;
      }
      // An item without bytes is only a lease. Replaces the item, because the holder of the lease
      // may be dead or too slow.
      if (!answer.has_size || answer.size != 0 || !answer.has_cas) break;
      offer_cas_ = answer.cas;
      if (may_send_again) step_ = Step::paying;
      end = OfferEnd::put_off;
      break;
    case Kind::refused:
      if (!has_looked_) note_there(true);
      // Another client was faster. If the refused command was an "add", the item may be only a
      // lease.
      if (!is_look && offer_cas_ == 0 && may_send_again) {
        look_for_offer();
        return true;
      }
      break;
    case Kind::none:
      if (is_look) note_there(false);
      offer_cas_ = 0;
      if (may_send_again) step_ = Step::paying;
      end = OfferEnd::put_off;
      break;
    case Kind::too_large:
      of.too_large = std::min(of.too_large, offer_.bytes());
      stats.count(Counter::cluster_refused);
      end = OfferEnd::refused;
      break;
    case Kind::full:
      of.is_full = true;
      of.no_offers_until_ns.store(now_ns_ + k_no_offers_ns, std::memory_order_relaxed);
      stats.count(Counter::cluster_refused);
      end = OfferEnd::put_off;
      break;
    default: return false;
  }
  if (step_ != Step::paying) end_offer(end);
  return true;
}

void ClusterClient::Worker::ask_figures(std::uint64_t now) {
  if (!source_.is_leader() || has_demand_ || step_ != Step::none) return;
  for (auto& server : servers_) {
    if (now < server->next_figures_ns || !state(server->fill.server).breaker.allows_requests(now))
      continue;
    if (!prepare(server->fill, now) || server->fill.connection.pending() != 0) continue;
    server->next_figures_ns = now + k_between_figures_ns;
    server->filled_ns = now;
    server->fill.connection.send(k_figures_tag, MetaCommand::figures());
  }
}

}  // namespace cube::cache
