#include "nn/kv_attention.h"
#include "nn/moe/moe_layers.h"
#include "ops/elementwise.h"
#include "whole/llada_golden.h"

// Forward passes of both language models, layer by layer, against the golden passes.
namespace tessera {
namespace {

using tensor::Tensor;

// The first `kv_heads * head_dim` columns of a token, in the order [kv heads, tokens, head_dim].
std::vector<float> by_head(const Tensor& slots, int64_t heads) {
  const int64_t width = slots.size(1) / heads;
  std::vector<float> out;
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t t = 0; t < slots.size(0); ++t)
      for (int64_t c = 0; c < width; ++c) out.push_back(slots.row<float>(t)[h * width + c]);
  return out;
}

struct Watched {
  Watched() {
    layers.log().watch([this](const nn::MoeWork& work) {
      logits.push_back(work.gate.router().logits(work.tokens));
      routing.push_back(work.routing);
    });
  }
  nn::MoeLayers layers;
  std::vector<Tensor> logits;
  std::vector<ops::Routing> routing;
};

void check_forward(const golden::LladaCase& golden, const nn::TokenModel& model,
                   const std::string& prefix) {
  const std::vector<int32_t> ids = golden.ids(prefix + "tokens");
  const auto tokens = static_cast<int64_t>(ids.size());
  const nn::TokenView view{-1, {0}, {}, {{0, {0, tokens}}}, {tokens}};
  nn::KvAttention attention(model.geometry(), nn::sequences_of_lengths(view.lengths));
  Watched experts;
  attention.begin_step({.index = 0});
  const auto placement = model.place(view);
  nn::Hidden hidden = model.embed(ids, view);
  const Tensor expected = golden.io.get(prefix + "hidden");
  for (int b = 0; b <= model.geometry().blocks; ++b) {
    if (b > 0) model.block(b - 1, {}, *placement, hidden, {attention, experts.layers});
    EXPECT_LT(golden::max_error(hidden.tokens.body.to_floats(), golden::row(expected, b)), 1e-4)
        << prefix << "hidden after " << b;
  }
  const Tensor logits = model.logits(hidden, view, view.body);
  EXPECT_LT(golden::max_error(logits.to_floats(), golden.io.get(prefix + "logits").to_floats()),
            1e-4);
  const auto index = golden.io.get(prefix + "router_index");
  ASSERT_EQ(experts.routing.size(), model.geometry().experts.size());
  for (size_t l = 0; l < experts.routing.size(); ++l) {
    const auto layer = static_cast<int64_t>(l);
    EXPECT_EQ(experts.routing[l].ids.to_ints(), index.slice(0, layer, layer + 1).to_ints());
    EXPECT_LT(golden::max_error(experts.routing[l].weights.to_floats(),
                                golden::row(golden.io.get(prefix + "router_weights"), layer)),
              1e-4);
    EXPECT_LT(golden::max_error(experts.logits[l].to_floats(),
                                golden::row(golden.io.get(prefix + "router_logits"), layer)),
              1e-4);
  }
  if (!golden.io.entries().contains(prefix + "keys")) return;
  for (int b = 0; b < model.geometry().blocks; ++b) {
    const auto [k, v] = attention.slots().read(b, 0, {0, tokens});
    const int64_t heads = model.geometry().attention[static_cast<size_t>(b)].kv_heads;
    EXPECT_LT(golden::max_error(by_head(k, heads), golden::row(golden.io.get(prefix + "keys"), b)),
              1e-4);
    EXPECT_LT(
        golden::max_error(by_head(v, heads), golden::row(golden.io.get(prefix + "values"), b)),
        1e-4);
  }
}

void check(const std::string& name) {
  const golden::LladaCase golden(name);
  const auto model = golden.load();
  ASSERT_EQ(model->geometry().experts.size(),
            size_t(golden.io.get("forward.0.router_index").size(0)));
  for (const char* prefix : {"forward.0.", "forward.1."}) check_forward(golden, *model, prefix);
}

TEST(LladaForwardGolden, LladaMoe) { check("llada_moe"); }
TEST(LladaForwardGolden, Llada2IsBlockCausal) { check("llada2"); }

}  // namespace
}  // namespace tessera
