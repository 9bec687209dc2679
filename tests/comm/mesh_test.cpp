#include "comm/mesh.h"

#include <gtest/gtest.h>

#include <set>

#include "comm/collectives.h"
#include "comm/threads/launch.h"
#include "tessera/error.h"

namespace tessera::comm {
namespace {

using namespace std::chrono_literals;
using Names = std::vector<std::string_view>;

// Uneven on purpose, in an order unlike a plan's.
Mesh three_axes() { return Mesh({{"cfg", 2}, {"data", 3}, {"tensor", 1}, {"ulysses", 4}}); }

TEST(Mesh, CountsRanksWithTheLastAxisInside) {
  const Mesh mesh = three_axes();
  EXPECT_EQ(mesh.size(), 24);
  EXPECT_EQ(mesh.size("data"), 3);
  EXPECT_EQ(mesh.coordinate(17, "cfg"), 1);
  EXPECT_EQ(mesh.coordinate(17, "data"), 1);
  EXPECT_EQ(mesh.coordinate(17, "tensor"), 0);
  EXPECT_EQ(mesh.coordinate(17, "ulysses"), 1);
  EXPECT_EQ(Mesh().size(), 1);
  EXPECT_EQ(Mesh().group(0, {}), std::vector<int>{0});
}

TEST(Mesh, TheOrderOfTheAxesIsTheOrderOfTheRanks) {
  const Mesh turned({{"ulysses", 4}, {"cfg", 2}});
  EXPECT_EQ(turned.group(5, Names{"cfg"}), (std::vector<int>{4, 5}));
  EXPECT_EQ(turned.group(5, Names{"ulysses"}), (std::vector<int>{1, 3, 5, 7}));
}

TEST(Mesh, GroupsOfAnyAxesPartTheRanks) {
  const Mesh mesh = three_axes();
  const Names all{"cfg", "data", "tensor", "ulysses"};
  for (unsigned chosen = 0; chosen < 16; ++chosen) {
    Names axes;
    int count = 1;
    for (unsigned a = 0; a < 4; ++a)
      if (chosen >> a & 1) axes.push_back(all[a]), count *= mesh.size(all[a]);
    for (int rank = 0; rank < mesh.size(); ++rank) {
      const auto group = mesh.group(rank, axes);
      EXPECT_EQ(int(group.size()), count);
      EXPECT_EQ(std::count(group.begin(), group.end(), rank), 1);
      for (const int other : group) {
        EXPECT_EQ(mesh.group(other, axes), group);
        for (unsigned a = 0; a < 4; ++a)
          EXPECT_TRUE((chosen >> a & 1) ||
                      mesh.coordinate(other, all[a]) == mesh.coordinate(rank, all[a]));
      }
    }
  }
}

TEST(Mesh, AnOverlayIsARunOfNeighboursOfAGroup) {
  const Mesh mesh({{"data", 3}, {"pipefusion", 2}, {"ulysses", 2}});
  const Names tokens{"data", "ulysses"};
  EXPECT_EQ(mesh.group(6, tokens), (std::vector<int>{2, 3, 6, 7, 10, 11}));
  EXPECT_EQ(mesh.overlay(6, tokens, 3), (std::vector<int>{2, 3, 6}));
  EXPECT_EQ(mesh.overlay(7, tokens, 3), (std::vector<int>{7, 10, 11}));
  EXPECT_EQ(mesh.overlay(10, tokens, 4), (std::vector<int>{10, 11}));
  std::set<std::vector<int>> runs;
  for (int rank = 0; rank < mesh.size(); ++rank) runs.insert(mesh.overlay(rank, tokens, 3));
  EXPECT_EQ(runs.size(), 4u);
}

TEST(Mesh, CommunicatorsHoldTheirGroups) {
  const Mesh mesh({{"data", 2}, {"ring", 3}});
  threads::run(6, 20s, [&](Communicator& world) {
    const auto ring = mesh.communicator(world, Names{"ring"});
    const auto data = mesh.communicator(world, Names{"data"});
    const auto both = mesh.communicator(world, Names{"ring", "data"});
    const tensor::Tensor mine =
        tensor::Tensor::from(std::span<const int32_t>(std::vector<int32_t>{world.rank()}), {1});
    for (const auto& [group, axes] : {std::pair{ring.get(), Names{"ring"}},
                                      {data.get(), Names{"data"}},
                                      {both.get(), Names{"data", "ring"}}}) {
      std::vector<int> heard;
      for (const auto& part : all_gather(*group, mine, {"mesh", -1}).wait())
        heard.push_back(int(part.to_ints().front()));
      if (heard != mesh.group(world.rank(), axes)) throw std::runtime_error("another group");
    }
  });
}

TEST(Mesh, RefusesWhatIsNoMesh) {
  EXPECT_THROW(Mesh({{"data", 0}}), Error);
  EXPECT_THROW(Mesh({{"data", 2}, {"data", 2}}), Error);
  EXPECT_THROW(three_axes().size("ring"), Error);
  EXPECT_THROW(three_axes().group(24, {}), Error);
  EXPECT_THROW(three_axes().overlay(0, {}, 0), Error);
  EXPECT_THROW(threads::run(2, 20s, [](Communicator& world) { Mesh().communicator(world, {}); }),
               Error);
}

}  // namespace
}  // namespace tessera::comm
