#include "cache/tier/cluster/dns/dns_query.h"

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "cache/base/memory/mapping.h"
#include "cache/base/sys.h"

namespace cube::cache {

namespace sys = base::sys;

namespace {

constexpr std::size_t k_most_servers = 3, k_most_names = 16, k_most_text = 1 << 20;
constexpr std::uint64_t k_resolver_second_ns = 1'000'000'000, k_longest_timeout_s = 2;
constexpr int k_most_at_once = 16;
constexpr unsigned k_most_rounds = 3, k_most_ndots = 15;

void take_option(std::string_view word, ResolverSettings& settings) {
  const std::size_t colon = std::min(word.find(':'), word.size());
  const std::string_view name = word.substr(0, colon),
                         digits = word.substr(std::min(colon + 1, word.size()));
  unsigned number = 0;
  if (std::from_chars(digits.data(), digits.data() + digits.size(), number).ec != std::errc{})
    return;
  if (name == "ndots") settings.ndots = std::min(number, k_most_ndots);
  if (name == "timeout")
    settings.timeout_ns =
        std::clamp<std::uint64_t>(number, 1, k_longest_timeout_s) * k_resolver_second_ns;
  if (name == "attempts") settings.rounds = std::clamp(number, 1U, k_most_rounds);
}

}  // namespace

ResolverSettings parse_resolver_settings(std::string_view text) {
  ResolverSettings settings;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    line = line.substr(0, line.find_first_of("#;"));
    const std::string_view key = take_field(line);
    if (key == "nameserver") {
      const std::string_view word = take_field(line);
      const bool is_v6 = word.find(':') != std::string_view::npos;
      const auto server = parse_server_address(
          is_v6 ? "[" + std::string(word) + "]:53" : std::string(word) + ":53", {});
      if (server && settings.servers.size() < k_most_servers) settings.servers.push_back(*server);
    } else if (key == "search" || key == "domain") {
      settings.search.clear();
      for (auto word = take_field(line); !word.empty() && settings.search.size() + 1 < k_most_names;
           word = take_field(line))
        settings.search.emplace_back(word);
    } else if (key == "options") {
      for (auto word = take_field(line); !word.empty(); word = take_field(line))
        take_option(word, settings);
    }
  }
  // The default of libc.
  if (settings.servers.empty())
    settings.servers.push_back(*parse_server_address("127.0.0.1:53", {}));
  return settings;
}

std::vector<std::string> names_to_ask(std::string_view host, const ResolverSettings& settings) {
  if (host.ends_with('.')) return {std::string(host)};
  std::vector<std::string> names;
  for (const std::string& domain : settings.search) {
    const bool is_root = domain == ".";
    names.push_back(std::string(host) + (is_root ? "" : "." + domain));
  }
  const bool is_whole = static_cast<unsigned>(std::ranges::count(host, '.')) >= settings.ndots;
  names.insert(is_whole ? names.begin() : names.end(), std::string(host));
  return names;
}

void DnsQuery::begin(std::string_view server, std::uint64_t now_ns) {
  socket_.reset();
  has_address_ = false;
  if (const auto found = find_server_address(server); found) {
    address_ = *found;
    has_address_ = true;
    return;
  }
  const auto room = base::Mapping::anonymous(k_most_text);
  if (!room) return end("no memory");
  char* const text = reinterpret_cast<char*>(room->data());
  const long n = sys::read_small_file("/etc/resolv.conf", text, k_most_text);
  begin(server, parse_resolver_settings({text, sys::failed(n) ? 0 : static_cast<std::size_t>(n)}),
        now_ns);
}

void DnsQuery::begin(std::string_view server, ResolverSettings settings, std::uint64_t now_ns) {
  socket_.reset();
  has_address_ = false;
  settings_ = std::move(settings);
  const std::size_t colon = server.rfind(':');
  if (colon == std::string_view::npos) return end("it has no port");
  const std::string_view digits = server.substr(colon + 1);
  if (std::from_chars(digits.data(), digits.data() + digits.size(), port_).ec != std::errc{})
    return end("it has no port");
  names_ = names_to_ask(server.substr(0, colon), settings_);
  name_ = try_ = 0;
  type_ = DnsType::v4;
  end_ns_ = now_ns + k_longest_ns;
  ask(now_ns);
}

void DnsQuery::end(std::string_view why) {
  socket_.reset();
  why_ = why;
}

void DnsQuery::ask(std::uint64_t now_ns) {
  for (; try_ < settings_.servers.size() * settings_.rounds; ++try_) {
    if (now_ns >= end_ns_) break;
    if (sys::failed(sys::raw(SYS_getrandom, sys::arg(&id_), sizeof id_, 0)))
      id_ = static_cast<std::uint16_t>(now_ns >> 4);
    std::byte question[k_most_dns_bytes];
    const std::size_t size = write_dns_question(names_[name_], type_, id_, question);
    if (size == 0) return next_name(now_ns);
    const ServerAddress& server = settings_.servers[try_ % settings_.servers.size()];
    const long made = sys::socket(server.family(), SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (sys::failed(made)) continue;
    socket_.reset(static_cast<int>(made));
    // A connected socket receives only datagrams of this server, and reports an error if no server
    // listens there.
    if (sys::failed(sys::connect(socket_.get(), &server.any, server.bytes)) ||
        sys::failed(sys::send(socket_.get(), question, size, MSG_NOSIGNAL | MSG_DONTWAIT)))
      continue;
    until_ns_ = now_ns + settings_.timeout_ns;
    return;
  }
  end("no name server could answer");
}

void DnsQuery::next_server(std::uint64_t now_ns) {
  ++try_;
  ask(now_ns);
}

void DnsQuery::next_name(std::uint64_t now_ns) {
  type_ = DnsType::v4;
  if (++name_ >= names_.size()) return end("there is no such name");
  try_ = 0;
  ask(now_ns);
}

void DnsQuery::take(const DnsAnswer& answer, std::uint64_t now_ns) {
  switch (answer.kind) {
    case DnsAnswer::Kind::not_ours: return;
    case DnsAnswer::Kind::address:
      socket_.reset();
      address_ = answer.address;
      address_.v4.sin_port = htons(port_);
      has_address_ = true;
      return;
    case DnsAnswer::Kind::failed: return next_server(now_ns);
    case DnsAnswer::Kind::no_name: return next_name(now_ns);
    case DnsAnswer::Kind::none: break;
  }
  if (type_ == DnsType::v6) return next_name(now_ns);
  type_ = DnsType::v6;
  ask(now_ns);
}

void DnsQuery::pump(std::uint64_t now_ns) {
  for (int i = 0; i < k_most_at_once && is_under_way(); ++i) {
    std::byte bytes[k_most_dns_bytes];
    const long n =
        sys::recv(socket_.get(), reinterpret_cast<char*>(bytes), sizeof bytes, MSG_DONTWAIT);
    if (n == -EAGAIN || n == -EINTR) break;
    if (sys::failed(n)) {
      next_server(now_ns);
    } else {
      take(parse_dns_answer({bytes, static_cast<std::size_t>(n)}, names_[name_], type_, id_),
           now_ns);
    }
  }
  if (is_under_way() && now_ns >= until_ns_) next_server(now_ns);
}

}  // namespace cube::cache
