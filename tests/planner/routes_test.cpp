#include "planner/routes.h"

#include <gtest/gtest.h>

namespace tessera::planner {
namespace {

std::vector<std::string> names(const Routes& routes, int from, int to) {
  std::vector<std::string> found;
  for (const int link : routes.way(from, to).links) found.push_back(routes.name(link));
  return found;
}

TEST(Routes, CrossWhatStandsBetweenTwoRanks) {
  Cluster cluster;
  cluster.hosts = 2;
  cluster.devices = 4;
  cluster.groups = 2;
  cluster.link = {1e9, 1};
  cluster.bridge = Link{1e9, 2};
  cluster.network = {1e8, 4};
  const Routes routes(cluster, 8);
  EXPECT_EQ(names(routes, 0, 1), (std::vector<std::string>{"out 0", "in 1"}));
  EXPECT_EQ(names(routes, 3, 1), (std::vector<std::string>{"out 3", "in 1", "bridge 0 down"}));
  EXPECT_EQ(names(routes, 1, 6),
            (std::vector<std::string>{"out 1", "in 6", "network out 0", "network in 1"}));
  EXPECT_EQ(routes.way(0, 1).latency, 1);
  EXPECT_EQ(routes.way(0, 2).latency, 3);
  EXPECT_EQ(routes.way(0, 4).latency, 5);
}

TEST(Routes, GiveEachDeviceANetworkOfItsOwnWhereItHasOne) {
  Cluster cluster;
  cluster.hosts = 2;
  cluster.devices = 1;
  cluster.network = {1e8, 0};
  cluster.network_by_device = true;
  cluster.fabric = Link{1e7, 0};
  EXPECT_EQ(names(Routes(cluster, 2), 1, 0),
            (std::vector<std::string>{"network out 1", "network in 0", "fabric"}));
}

}  // namespace
}  // namespace tessera::planner
