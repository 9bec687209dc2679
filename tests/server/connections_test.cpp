#include "server/connections.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <unistd.h>

#include <array>

#include "server/sockets.h"

namespace tessera::server {
namespace {

sockaddr_in v4(const char* text) {
  sockaddr_in made{};
  made.sin_family = AF_INET;
  inet_pton(AF_INET, text, &made.sin_addr);
  return made;
}

std::string counted(const char* text) {
  sockaddr_in6 made{};
  made.sin6_family = AF_INET6;
  inet_pton(AF_INET6, text, &made.sin6_addr);
  return counted_address(reinterpret_cast<const sockaddr*>(&made));
}

TEST(Connections, AnAddressHasAShare) {
  Connections all(8);
  const sockaddr_in one = v4("127.0.0.1"), two = v4("127.0.0.2");
  const auto *first = reinterpret_cast<const sockaddr*>(&one),
             *second = reinterpret_cast<const sockaddr*>(&two);
  for (int i = 0; i < 6; ++i) {
    EXPECT_TRUE(all.may_open(first));
    all.opened(1000 + i, first);
  }
  EXPECT_FALSE(all.may_open(first));
  EXPECT_TRUE(all.may_open(second));
  all.closed(1000);
  EXPECT_TRUE(all.may_open(first));
}

TEST(Connections, OfIpv6TheNetworkCounts) {
  EXPECT_EQ(counted("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
  EXPECT_EQ(counted("2001:db8:1:2::1"), counted("2001:db8:1:2:ffff::"));
  EXPECT_NE(counted("2001:db8:1:3::1"), counted("2001:db8:1:2::1"));
  EXPECT_EQ(counted("::ffff:10.0.0.7"), "10.0.0.7");
}

TEST(Connections, LateOnesEnd) {
  Connections all(8);
  const auto now = std::chrono::steady_clock::now();
  std::array<std::array<int, 2>, 4> pairs{};
  for (auto& pair : pairs) {
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair.data()), 0);
    all.opened(pair[0], nullptr);
  }
  all.expect(pairs[0][0], now - std::chrono::seconds(1));
  all.expect(pairs[1][0], now + std::chrono::hours(1));
  all.serve(pairs[2][0], now + std::chrono::hours(1));
  all.expect(pairs[3][0], now + std::chrono::hours(1));
  all.rest(pairs[3][0]);
  for (const int i : {2, 3}) ::shutdown(pairs[size_t(i)][1], SHUT_WR);  // their clients still read
  all.end_late(now);
  EXPECT_TRUE(peer_closed(pairs[0][1]));
  for (const size_t i : {1, 2, 3}) EXPECT_FALSE(peer_closed(pairs[i][1])) << i;
  ::shutdown(pairs[1][1], SHUT_WR);
  all.end_late(now);
  EXPECT_TRUE(peer_closed(pairs[1][1])) << "who has left sends nothing more";
  for (auto& pair : pairs)
    for (const int end : pair) ::close(end);
}

}  // namespace
}  // namespace tessera::server
