#include "shim/cli/doctor/server_probe.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "cache/base/error_text.h"
#include "cache/tier/cluster/meta_protocol.h"
#include "shim/cli/pool/pool.h"
#include "shim/cli/pool/pool_talk.h"

namespace cube::cli {
namespace {

using Clock = PoolTalk::Clock;
using Kind = cache::MetaAnswer::Kind;

constexpr int k_round_trips = 21, k_tries = 8;
constexpr std::int64_t k_day_s = 86'400;
constexpr std::size_t k_most_notes = 256;

// Returns the median of several round trips in microseconds, or a negative number if the server
// does not know the command.
double round_trip_us(PoolTalk& talk, Clock::time_point end) {
  std::vector<double> all;
  std::string line;
  for (int i = 0; i < k_round_trips; ++i) {
    const auto began = Clock::now();
    if (!talk.ask("mn", line, end) || line != "MN") return -1;
    all.push_back(std::chrono::duration<double, std::micro>(Clock::now() - began).count());
  }
  std::ranges::nth_element(all, all.begin() + k_round_trips / 2);
  return all[k_round_trips / 2];
}

// Makes a text from a server, which may contain arbitrary bytes, safe to print.
void make_plain(std::string& text) {
  constexpr std::size_t k_longest = 200;
  text.resize(std::min(text.size(), k_longest));
  std::ranges::replace_if(
      text, [](unsigned char c) { return c < ' ' || c >= 0x7f; }, '?');
}

// True if the note contains no control sequences for a terminal.
bool is_plain(const NodeNote& note) {
  const auto is_text = [](const std::string& text) {
    return std::ranges::none_of(text, [](unsigned char c) { return c < ' ' || c == 0x7f; });
  };
  return is_text(note.node) && is_text(note.servers) &&
         std::ranges::all_of(note.roots, [&](const auto& root) {
           return is_text(root.first) && is_text(root.second);
         });
}

std::vector<NodeNote> parse_notes(const std::string& text) {
  std::vector<NodeNote> notes;
  const auto list = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!list.is_array()) return notes;
  for (const auto& one : list) {
    // Any program that can reach the server can write this value.
    try {
      notes.push_back({one.at("node"), one.at("servers"), one.at("roots"), one.at("time")});
    } catch (const nlohmann::json::exception&) {
      continue;
    }
    if (!is_plain(notes.back())) notes.pop_back();
  }
  return notes;
}

std::string text_of(const std::vector<NodeNote>& notes) {
  auto list = nlohmann::json::array();
  for (const NodeNote& note : notes)
    list.push_back({{"node", note.node},
                    {"servers", note.servers},
                    {"roots", note.roots},
                    {"time", note.time}});
  return list.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Reads the notes of other nodes and adds `own`. If another node stores its note at the same time,
// the later node starts over.
std::string exchange_notes(PoolTalk& talk, const std::string& key, const NodeNote& own,
                           std::vector<NodeNote>& notes, Clock::time_point end) {
  std::string line, value;
  for (int i = 0; i < k_tries; ++i) {
    // Any program that can reach the server can write this value. If the value is too long for
    // notes, replaces it without reading it.
    if (!talk.ask(fmt::format("mg {} s c", key), line, end)) return talk.trouble();
    cache::MetaAnswer found = cache::parse_meta_answer(line);
    const bool is_short =
        found.kind == Kind::done && found.has_size && found.size <= PoolTalk::k_longest_value;
    if (is_short) {
      if (!talk.ask(fmt::format("mg {} v c", key), line, end)) return talk.trouble();
      found = cache::parse_meta_answer(line);
      if (found.kind == Kind::value && !talk.read_value(found.size, value, end))
        return talk.trouble();
    }
    const bool is_there = found.kind == Kind::value || found.kind == Kind::done;
    if (!is_there && found.kind != Kind::none) return line;
    notes = found.kind == Kind::value ? parse_notes(value) : std::vector<NodeNote>{};
    std::erase_if(notes, [&](const NodeNote& note) {
      return note.node == own.node || note.time < own.time - k_day_s ||
             note.time > own.time + k_day_s;
    });
    if (notes.size() >= k_most_notes) notes.erase(notes.begin(), notes.end() - k_most_notes + 1);
    notes.push_back(own);
    value = text_of(notes);
    // Drops the oldest notes until the rest fits.
    for (; value.size() > PoolTalk::k_longest_value && notes.size() > 1; value = text_of(notes))
      notes.erase(notes.begin(), notes.end() - static_cast<std::ptrdiff_t>((notes.size() + 1) / 2));
    const std::string how = is_there ? fmt::format("C{}", found.cas) : std::string("ME");
    const std::string head = fmt::format("ms {} {} {} T{}\r\n", key, value.size(), how, k_day_s);
    const std::string_view parts[] = {head, value, "\r\n"};
    if (!talk.send(parts, end) || !talk.read_line(line, end)) return talk.trouble();
    const cache::MetaAnswer kept = cache::parse_meta_answer(line);
    if (kept.kind == Kind::done) return {};
    // A refusal means that another node has changed or removed the value since it was read. So try
    // again.
    if (kept.kind != Kind::refused && kept.kind != Kind::none) return line;
  }
  return "other nodes write there all the time";
}

}  // namespace

std::uint64_t ServerProbe::number(const std::string& which) const {
  std::uint64_t value = 0;
  for (const auto* const map : {&stats, &settings}) {
    if (const auto found = map->find(which); found != map->end())
      std::from_chars(found->second.data(), found->second.data() + found->second.size(), value);
  }
  return value;
}

static ServerProbe ask_server(const std::string& name, const std::string& login,
                              const std::string& key, const NodeNote& own, int timeout_ms) {
  const auto end = Clock::now() + std::chrono::milliseconds(timeout_ms);
  ServerProbe look;
  look.name = name;
  const auto is_about_login = [&] {
    return look.trouble.find("unauthenticated") != std::string::npos ||
           look.trouble.find("authentication") != std::string::npos;
  };
  const auto address = look_up_server(name, end, look.trouble);
  if (!address) return look;
  look.trouble.clear();
  PoolTalk talk;
  std::string line;
  if (!talk.open(*address, login, end) || !talk.ask("version", line, end)) {
    look.trouble = talk.trouble();
  } else if (!line.starts_with("VERSION ")) {
    look.trouble = line;
  }
  look.was_refused = is_about_login();
  if (!look.trouble.empty()) return look;
  look.version = line.substr(line.find(' ') + 1);
  look.is_new_enough = is_new_memcached(look.version);
  look.round_trip_us = round_trip_us(talk, end);
  look.has_meta = look.round_trip_us >= 0;
  if (!talk.is_open()) look.trouble = talk.trouble();
  if (!look.has_meta) return look;
  if (auto stats = talk.figures("stats", end)) look.stats = std::move(*stats);
  if (auto settings = talk.figures("stats settings", end)) look.settings = std::move(*settings);
  if (talk.is_open()) look.no_notes = exchange_notes(talk, key, own, look.notes, end);
  if (!talk.is_open()) look.trouble = talk.trouble();
  return look;
}

ServerProbe probe_server(const std::string& name, const std::string& login, const std::string& key,
                         const NodeNote& own, int timeout_ms) {
  ServerProbe look = ask_server(name, login, key, own, timeout_ms);
  make_plain(look.version);
  make_plain(look.trouble);
  make_plain(look.no_notes);
  return look;
}

}  // namespace cube::cli
