#include "parallel/experts/exchange.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "comm/threads/launch.h"
#include "nn/random_bank.h"
#include "ops/elementwise.h"
#include "tessera/error.h"

namespace tessera::parallel {
namespace {

using namespace std::chrono_literals;
using namespace nn::random_bank;

// ids of 5 tokens on rank r: some experts get nothing, a slot may be empty.
Tensor ids_of(int rank, int experts) {
  std::vector<int32_t> ids(10);
  for (int i = 0; i < 10; ++i) ids[size_t(i)] = (i * 3 + rank) % experts;
  ids[3] = -1;
  return Tensor::from(std::span<const int32_t>(ids), {5, 2});
}

std::vector<int32_t> pairs_of(const Tensor& ids) {
  std::vector<int32_t> assignments;
  for (int32_t i = 0; i < ids.elements(); ++i)
    if (ids.data<int32_t>()[i] >= 0) assignments.push_back(i);
  return assignments;
}

void rows_come_home(int ranks, int experts, std::vector<int> owner, DType dtype) {
  comm::threads::run(ranks, 20s, [&](comm::Communicator& world) {
    const int rank = world.rank();
    std::vector<bool> mine;
    for (int o : owner) mine.push_back(o == rank);
    ExpertExchange exchange(&world, owner);
    const Tensor x = ops::cast(normal({5, 32}, uint32_t(rank)), dtype);
    const Tensor ids = ids_of(rank, experts);
    ExpertFlight flight =
        exchange.dispatch(3, x, ids, pairs_of(ids), bank(experts, 1, dtype, mine));
    exchange.compute(flight);
    const Tensor rows = Tensor::zeros({ids.elements(), 32}, dtype);
    exchange.finish(flight, rows);
    const Tensor expected = ops::expert_rows(x, {ids, {}}, *bank(experts, 1, dtype).routed);
    const auto got = rows.to_floats(), want = expected.to_floats();
    for (const int32_t assignment : flight.assignments)
      for (size_t c = size_t(assignment) * 32; c < size_t(assignment + 1) * 32; ++c)
        EXPECT_EQ(got[c], want[c]) << "rank " << rank << ", assignment " << assignment;
  });
}

TEST(ExpertExchange, RowsComeHomeFromAnyPlacement) {
  for (DType dtype : {DType::f32, DType::bf16}) {
    rows_come_home(1, 4, {0, 0, 0, 0}, dtype);
    rows_come_home(2, 4, experts_in_blocks(4, 2), dtype);
    rows_come_home(3, 4, {2, 0, 0, 1}, dtype);
    rows_come_home(3, 4, {2, 2, 2, 2}, dtype);  // two ranks have no expert
    rows_come_home(4, 3, experts_in_blocks(3, 4), dtype);
  }
}

TEST(ExpertExchange, RanksWithoutTokensTakePart) {
  comm::threads::run(2, 20s, [&](comm::Communicator& world) {
    ExpertExchange exchange(&world, {0, 1});
    const int64_t tokens = world.rank() == 0 ? 5 : 0;
    const Tensor ids = world.rank() == 0 ? ids_of(0, 2) : Tensor::empty({0, 2}, DType::i32);
    ExpertFlight flight =
        exchange.dispatch(0, normal({tokens, 32}, 4), ids, pairs_of(ids), bank(2, 1, DType::f32));
    exchange.compute(flight);
    const Tensor rows = Tensor::zeros({ids.elements(), 32}, DType::f32);
    exchange.finish(flight, rows);
    EXPECT_EQ(flight.assignments.size(), world.rank() == 0 ? 9u : 0u);
    for (const int32_t assignment : flight.assignments)
      EXPECT_NE(rows.row<float>(assignment)[0], 0) << assignment;
  });
}

TEST(ExpertExchange, BlocksAreUneven) {
  EXPECT_EQ(experts_in_blocks(5, 3), (std::vector<int>{0, 1, 1, 2, 2}));
  EXPECT_EQ(expert_owners(parse_plan("expert=3"), 5), experts_in_blocks(5, 3));
  EXPECT_EQ(expert_owners(parse_plan("expert=3,placement=strided"), 5),
            (std::vector<int>{0, 1, 2, 0, 1}));
  EXPECT_EQ(expert_owners(parse_plan("expert=2,placement=1+1+0"), 3), (std::vector<int>{1, 1, 0}));
  EXPECT_THROW(expert_owners(parse_plan("expert=2,placement=1+1+0"), 4), Error);
  EXPECT_THROW(ExpertExchange(nullptr, {0, 1}), Error);
}

TEST(ExpertExchange, SaysWhyAPlanCannotSpreadTheExperts) {
  nn::Geometry geometry;
  EXPECT_TRUE(placement_problems(parse_plan("expert=9"), geometry).empty()) << "no experts at all";
  geometry.experts = {{.block = 0, .experts = 4, .top_k = 2, .inner = 16}};
  EXPECT_TRUE(placement_problems(parse_plan("expert=4"), geometry).empty());
  auto found = placement_problems(parse_plan("expert=5"), geometry);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_NE(found[0].find("use at most 4"), std::string::npos) << found[0];
  found = placement_problems(parse_plan("expert=2,placement=1+1+0"), geometry);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_NE(found[0].find("name a rank for each of the 4"), std::string::npos) << found[0];
}

}  // namespace
}  // namespace tessera::parallel
