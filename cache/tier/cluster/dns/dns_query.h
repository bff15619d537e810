// Looks up the name of a server. Like libc, a query searches /etc/hosts first, and then asks the
// name servers of /etc/resolv.conf, with the search list of that file. libc's own resolver is not
// used: it loads libraries, allocates, and waits, which a thread in a host program must not do. No
// function of this class waits: the owner polls. Invariant: a query ends within k_longest_ns. The
// socket of a query belongs to the fd table of its thread. Thread safety: one thread.
#pragma once

#include <poll.h>

#include <string>
#include <string_view>
#include <vector>

#include "cache/base/unique_fd.h"
#include "cache/tier/cluster/dns/dns_message.h"

namespace cube::cache {

struct ResolverSettings {
  std::vector<ServerAddress> servers;  // at most three, with their ports
  std::vector<std::string> search;
  unsigned ndots = 1;
  std::uint64_t timeout_ns = 1'000'000'000;
  unsigned rounds = 2;
};
// Parses the text of a file in the format of /etc/resolv.conf.
ResolverSettings parse_resolver_settings(std::string_view text);
// Returns the names to ask for, in the order in which they must be tried.
std::vector<std::string> names_to_ask(std::string_view host, const ResolverSettings& settings);

class DnsQuery {
 public:
  static constexpr std::uint64_t k_longest_ns = 20'000'000'000;

  // Begins a query, and ends any query in progress. `server` is "HOST:PORT".
  void begin(std::string_view server, ResolverSettings settings, std::uint64_t now_ns);
  // Like begin() above, but with the settings of this machine. The query ends immediately if
  // /etc/hosts contains the name.
  void begin(std::string_view server, std::uint64_t now_ns);
  bool is_under_way() const { return static_cast<bool>(socket_); }
  pollfd to_poll() const { return {.fd = socket_.get(), .events = POLLIN, .revents = 0}; }
  // Handles the messages that have arrived. After a timeout, tries the next server or name.
  void pump(std::uint64_t now_ns);
  // The result; valid after the query has ended.
  bool has_address() const { return has_address_; }
  const ServerAddress& address() const { return address_; }
  std::string_view why() const { return why_; }

 private:
  void ask(std::uint64_t now_ns);
  void next_server(std::uint64_t now_ns);
  void next_name(std::uint64_t now_ns);
  void end(std::string_view why);
  void take(const DnsAnswer& answer, std::uint64_t now_ns);

  ResolverSettings settings_;
  std::vector<std::string> names_;
  std::size_t name_ = 0, try_ = 0;
  DnsType type_ = DnsType::v4;
  std::uint16_t id_ = 0, port_ = 0;
  base::UniqueFd socket_;
  std::uint64_t until_ns_ = 0, end_ns_ = 0;
  bool has_address_ = false;
  ServerAddress address_;
  std::string_view why_;
};

}  // namespace cube::cache
