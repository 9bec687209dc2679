#include "parallel/reuse/attention_reuse.h"

#include <gtest/gtest.h>

#include "parallel/reuse/ramp.h"

namespace tessera::parallel {
namespace {

using tensor::Tensor;

TEST(AttentionReuse, TheStepsAreThoseOfDiffusers) {
  const auto steps = [](const char* rule) {
    std::string text;
    for (int i = 0; i < 20; ++i) text += taylor_computes(parse_step_cache(rule), i) ? '1' : '0';
    return text;
  };
  EXPECT_EQ(steps("taylorseer,before=3,interval=5"), "11101000010000100001");
  EXPECT_EQ(steps("taylorseer,before=4,interval=3"), "11110100100100100100");
  EXPECT_EQ(steps("taylorseer,before=3,interval=4,after=18"), "11101000100010001011");
  EXPECT_EQ(steps("taylorseer,before=1,interval=1"), "11111111111111111111");
}

/// Each block adds the result of its attention, called only when needed.
class Asking final : public Ramp {
 public:
  using Ramp::Ramp;
  void block(int index, const nn::StepContext&, const nn::Placement& placement, nn::Hidden& hidden,
             const nn::Seams& seams) const override {
    const Tensor x = row(1, float((step() + 1) * (index + 1)));
    const bool needed = seams.attention.needs_heads(index);
    asked += needed ? 1 : 0;
    const Tensor seen =
        seams.attention.attend(index, placement.view, needed ? nn::Qkv{x, x, x} : nn::Qkv{});
    add(hidden.tokens.body, seen.to_floats().at(0));
  }
  mutable int asked = 0;
};

// First differences extrapolate linear results exactly.
TEST(AttentionReuse, PredictsTheResultsOfEachAttention) {
  const Asking model(std::vector<float>(9, 0));
  const StepReuse::Log log = model.run("taylorseer,before=3,interval=3");
  EXPECT_EQ(counts(log), "3 3 3 0 3 0 0 3 0");
  EXPECT_EQ(model.asked, 15);
  for (size_t i = 0; i < model.predicted.size(); ++i)
    EXPECT_NEAR(model.predicted[i], 6.0f * float(i + 1), 1e-4) << i;
}

}  // namespace
}  // namespace tessera::parallel
