#include "prefetch/order/announced/announced_order.h"

#include <algorithm>

#include "prefetch/order/list_paths.h"

namespace cube::prefetch {

const char* AnnouncedOrder::take(std::string_view bytes) {
  ClientMessage message;
  if (const char* const wrong = read_message(bytes, message); wrong != nullptr) return wrong;
  if (said_bye_) return "a message came after its goodbye";
  if (said_hello_ == (message.type == MessageType::hello)) return "messages are out of order";
  switch (message.type) {
    case MessageType::hello:
      if (message.version != k_announce_version) return "it speaks another version of the protocol";
      said_hello_ = true;
      rank_ = message.rank;
      return nullptr;
    case MessageType::begin: return begin(message);
    case MessageType::paths: return add(message);
    case MessageType::end: return end(message);
    default: said_bye_ = true; return nullptr;
  }
}

const char* AnnouncedOrder::begin(const ClientMessage& message) {
  if (has_begun_ && message.epoch <= epoch_) return "epochs are out of order";
  std::string base;
  if (!message.text.empty() && fold_path({}, message.text, base) != Folded::ok)
    return "a base directory is not an absolute path";
  drop_all();
  ++epochs_left_;
  has_base_ = !message.text.empty();
  base_ = base == "/" ? std::string() : std::move(base);
  epoch_ = message.epoch;
  expected_ = taken_ = 0;
  has_begun_ = is_open_ = true;
  has_news_ = false;
  return nullptr;
}

const char* AnnouncedOrder::add(const ClientMessage& message) {
  if (!is_open_ || message.epoch != epoch_) return "paths came for an epoch that is not open";
  if (message.first < expected_) return "sequence numbers are out of order";
  // Small messages share a block; otherwise the blocks would need more memory than the paths.
  const bool joins = !blocks_.empty() && message.first == expected_ &&
                     blocks_.back().paths.size() < k_longest_message;
  if (joins) {
    blocks_.back().paths += message.text;
  } else {
    blocks_.push_back({message.first, 0, std::string(message.text)});
    bytes_ += sizeof(Block);
  }
  bytes_ += message.text.size();
  expected_ = message.first + message.count;
  return nullptr;
}

const char* AnnouncedOrder::end(const ClientMessage& message) {
  if (!is_open_ || message.epoch != epoch_) return "the end of an epoch that is not open";
  is_open_ = false;
  if (message.drops) {
    drop_all();
    ++epochs_left_;
  }
  return nullptr;
}

void AnnouncedOrder::drop_all() {
  blocks_.clear();
  bytes_ = 0;
}

std::string_view AnnouncedOrder::next() {
  Block& block = blocks_.front();
  const std::size_t end = block.paths.find('\0', block.at);
  path_.assign(block.paths, block.at, end - block.at);
  block.at = end + 1;
  taken_ = ++block.first;
  has_news_ = true;
  if (block.at == block.paths.size()) {
    bytes_ -= block.paths.size() + sizeof(Block);
    blocks_.pop_front();
  }
  return path_;
}

TakenMessage AnnouncedOrder::news() const {
  TakenMessage taken;
  taken.epoch = epoch_;
  taken.sequence = taken_;
  return taken;
}

}  // namespace cube::prefetch
