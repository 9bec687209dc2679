#include "parallel/sequence/split_tokens.h"

#include <gtest/gtest.h>

#include "comm/threads/launch.h"
#include "ops/elementwise.h"
#include "tessera/error.h"

namespace tessera::parallel {
namespace {

using namespace std::chrono_literals;
using nn::Tensor;

const nn::TokenView kPass{-1, {0, 3}, {}, {{0, {4, 9}}, {3, {0, 2}}}, {12, 2}};

// Its stream is the ids; a block adds the number of tokens that it was given times zero, logits are
// ten times the stream.
class Echo : public nn::TokenModel {
 public:
  const nn::Geometry& geometry() const override { return geometry_; }
  nn::DType dtype() const override { return nn::DType::f32; }
  int64_t vocabulary() const override { return 1; }
  nn::PlacementPtr place(const nn::TokenView& view) const override {
    return std::make_shared<nn::Placement>(view);
  }
  nn::Hidden embed(std::span<const int32_t> ids, const nn::TokenView& view) const override {
    EXPECT_EQ(int64_t(ids.size()), nn::token_count(view.body));
    const std::vector<float> values(ids.begin(), ids.end());
    return {{{}, Tensor::from(std::span<const float>(values), {int64_t(ids.size()), 1})}, {}};
  }
  void block(int, const nn::StepContext&, const nn::Placement& placement, nn::Hidden& hidden,
             const nn::Seams&) const override {
    EXPECT_EQ(hidden.tokens.body.size(0), nn::token_count(placement.view.body));
  }
  Tensor logits(const nn::Hidden& hidden, const nn::TokenView& view,
                const nn::Segments& of) const override {
    EXPECT_EQ(view.body, of);
    return ops::blend(hidden.tokens.body, 10, hidden.tokens.body, 0);
  }

 private:
  nn::Geometry geometry_;
};

TEST(SplitTokenModel, GivesTheLogitsOfAllTokensToEveryRank) {
  const Echo echo;
  const std::vector<int32_t> ids{1, 2, 3, 4, 5, 6, 7};
  for (int ranks : {1, 2, 3, 9})
    comm::threads::run(ranks, 20s, [&](comm::Communicator& world) {
      Plan plan;
      plan.data = plan.expert = ranks;
      const SplitTokenModel model(echo, std::make_shared<TokenRuns>(world, plan));
      const auto placement = model.place(kPass);
      nn::Hidden hidden = model.embed(ids, kPass);
      EXPECT_EQ(model.logits(hidden, kPass, {{0, {5, 8}}, {3, {1, 2}}}).to_floats(),
                (std::vector<float>{20, 30, 40, 70}));
      EXPECT_EQ(model.logits(hidden, kPass, {}).elements(), 0);
      EXPECT_THROW(model.logits(hidden, kPass, {{3, {1, 3}}}), Error);
      EXPECT_THROW(model.embed(std::span(ids).subspan(1), kPass), Error);
    });
}

}  // namespace
}  // namespace tessera::parallel
