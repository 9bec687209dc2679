#include "parallel/experts/split_selection.h"

#include <gtest/gtest.h>

#include <mutex>

#include "comm/threads/launch.h"
#include "nn/random_bank.h"
#include "ops/elementwise.h"

namespace tessera::parallel {
namespace {

using namespace std::chrono_literals;
using namespace nn::random_bank;

const nn::TokenView kPass{-1, {0, 2, 5}, {}, {{0, {0, 6}}, {2, {3, 4}}, {5, {0, 4}}}, {6, 4, 4}};

struct Made {
  std::vector<float> out;
  std::vector<std::vector<int64_t>> uses;
  int64_t read = 0;
};

void note(nn::SelectiveExperts& experts, Made& made) {
  for (const auto& use : experts.take_uses())
    made.uses.push_back({use.site, use.row, use.tokens, use.distinct});
  made.read = experts.experts_read();
}

Made alone(const std::string& rule, DType dtype) {
  Made made;
  nn::SelectiveExperts experts(nn::parse_selection(rule));
  experts.restrict_to({0, 5});
  const Tensor x = ops::cast(normal({11, 32}, 3), dtype);
  for (int site : {0, 1}) {
    const auto out = experts.apply(site, kPass, x, router(7, 3, 9), bank(7, 1, dtype)).to_floats();
    made.out.insert(made.out.end(), out.begin(), out.end());
  }
  note(experts, made);
  return made;
}

// Every rank's result for its own tokens, in the order of ranks, site by site.
Made together(const std::string& rule, DType dtype, int ranks) {
  std::vector<Made> all{size_t(ranks)};
  comm::threads::run(ranks, 20s, [&](comm::Communicator& world) {
    Plan plan;
    plan.expert = plan.data = ranks;
    const auto owner = expert_owners(plan, 7);
    std::vector<bool> mine;
    for (int o : owner) mine.push_back(o == world.rank());
    const auto runs = std::make_shared<TokenRuns>(world);
    SplitSelectiveExperts experts(nn::parse_selection(rule), runs, {&world, owner});
    experts.restrict_to({0, 5});
    runs->cut(kPass);
    const Tensor x = ops::cast(normal({11, 32}, 3), dtype)
                         .slice(0, runs->range().begin, runs->range().end)
                         .contiguous();
    Made& made = all[size_t(world.rank())];
    for (int site : {0, 1}) {
      const auto out =
          experts.apply(site, runs->mine(), x, router(7, 3, 9), bank(7, 1, dtype, mine))
              .to_floats();
      made.out.insert(made.out.end(), out.begin(), out.end());
    }
    note(experts, made);
  });
  for (const Made& one : all) {
    EXPECT_EQ(one.uses, all[0].uses);
    EXPECT_EQ(one.read, all[0].read);
  }
  Made whole = all[0];
  whole.out.clear();
  for (size_t half : {0, 1})
    for (const Made& one : all) {
      const auto size = long(one.out.size() / 2);
      whole.out.insert(whole.out.end(), one.out.begin() + long(half) * size,
                       one.out.begin() + long(half + 1) * size);
    }
  return whole;
}

TEST(SplitSelectiveExperts, AreOneRankBitByBitUnderEveryRule) {
  for (const char* rule :
       {"vanilla", "topk:2", "des-seq:1", "des-vote:0.3", "des-vote:0.3,scope=batch", "des-max:0.5",
        "des-norm4:0.5", "des-peak:0.2", "naee:0.4", "mc:0.4,0.25,0.25"})
    for (DType dtype : {DType::f32, DType::bf16}) {
      const Made expected = alone(rule, dtype);
      for (int ranks : {2, 3, 4}) {
        const Made made = together(rule, dtype, ranks);
        EXPECT_EQ(made.out, expected.out) << rule << " on " << ranks;
        EXPECT_EQ(made.uses, expected.uses) << rule << " on " << ranks;
        EXPECT_EQ(made.read, expected.read) << rule << " on " << ranks;
      }
    }
}

TEST(SummedVotes, AreTheSameOnEveryRank) {
  comm::threads::run(3, 20s, [](comm::Communicator& world) {
    SummedVotes votes(world);
    std::vector<int64_t> values{int64_t{1} << 53, world.rank()};
    auto most = values;
    votes.sum(values);
    votes.max(most);
    EXPECT_EQ(values, (std::vector<int64_t>{3 * (int64_t{1} << 53), 3}));
    EXPECT_EQ(most, (std::vector<int64_t>{int64_t{1} << 53, 2}));
  });
}

}  // namespace
}  // namespace tessera::parallel
