#include "cache/tier/cluster/server_address.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

namespace cube::cache {
namespace {

std::string text_of(std::string_view server, std::string_view hosts = {}) {
  const auto found = parse_server_address(server, hosts);
  if (!found) return "error " + std::to_string(found.error().value);
  char text[INET6_ADDRSTRLEN] = {};
  const bool is_v4 = found->family() == AF_INET;
  const void* const address =
      is_v4 ? static_cast<const void*>(&found->v4.sin_addr) : &found->v6.sin6_addr;
  inet_ntop(found->family(), address, text, sizeof text);
  return std::string(text) + " " +
         std::to_string(ntohs(is_v4 ? found->v4.sin_port : found->v6.sin6_port));
}

TEST(ServerAddress, IsReadFromItsText) {
  EXPECT_EQ(text_of("10.1.2.3:11211"), "10.1.2.3 11211");
  EXPECT_EQ(text_of("[fd00::7]:65535"), "fd00::7 65535");
  EXPECT_EQ(text_of("[::1]:1"), "::1 1");
  for (const char* const wrong :
       {"cache-1:11211", "10.1.2:1", "10.1.2.3.4:1", "[zz]:1", "999.1.1.1:1"})
    EXPECT_EQ(text_of(wrong), "error " + std::to_string(ENOENT)) << wrong;
}

TEST(ServerAddress, APathIsAUnixSocket) {
  const auto found = parse_server_address("/run/m:1.sock", {});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->family(), AF_UNIX);
  EXPECT_STREQ(found->local.sun_path, "/run/m:1.sock");
  EXPECT_EQ(parse_server_address("/" + std::string(107, 'x'), {}).error().value, ENAMETOOLONG);
}

TEST(ServerAddress, ANameIsLookedUpInHosts) {
  constexpr std::string_view k_hosts =
      "# comment 9.9.9.9 cache-1\n127.0.0.1\tlocalhost\n10.0.0.5  other cache-1 # cache-2\nfd00::9 "
      "six\nbroken six2\n";
  EXPECT_EQ(text_of("cache-1:11211", k_hosts), "10.0.0.5 11211");
  EXPECT_EQ(text_of("localhost:7", k_hosts), "127.0.0.1 7");
  EXPECT_EQ(text_of("six:7", k_hosts), "fd00::9 7");
  for (const char* const none : {"cache-2:1", "cache:1", "six2:1", "comment:1"})
    EXPECT_EQ(text_of(none, k_hosts), "error " + std::to_string(ENOENT)) << none;
}

}  // namespace
}  // namespace cube::cache
