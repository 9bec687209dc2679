#include "fused/operator.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <span>

#include "fused/polled_ranks.h"
#include "nn/moe/capacity_policy.h"
#include "nn/moe/expert_choice.h"
#include "nn/moe/selection_policy.h"
#include "nn/random_bank.h"
#include "ops/elementwise.h"
#include "tessera/error.h"

namespace tessera::fused {
namespace {

using namespace nn::random_bank;

constexpr Order kOrders[] = {Order::random, Order::lopsided, Order::delayed};

// Layers of several kinds in order, on the ranks of a case: bit-identical to a single rank, and no
// bytes between ranks except crossing rows.
void expect_bulk(const PolledCase& c, const std::vector<LayerInput>& layers,
                 const std::string& what) {
  int slots = 1;
  int64_t bytes = 0;
  for (const LayerInput& layer : layers) {
    slots = std::max(slots, layer.router->options.top_k);
    bytes += crossing_bytes(c, layer);
  }
  const nn::Tensor& first = layers[0].tokens;
  PolledRanks ranks(c, slots, first.size(1) * size_of(first.dtype()));
  const auto made = ranks.run(layers);
  for (size_t l = 0; l < layers.size(); ++l)
    expect_same(made[l], bulk(layers[l]), what + " layer " + std::to_string(l));
  EXPECT_EQ(ranks.payload_bytes(), bytes) << what;
}

PolledCase blocks_of(int experts, std::vector<int64_t> tokens, uint32_t seed) {
  PolledCase c{.tokens = std::move(tokens), .seed = seed};
  for (int e = 0; e < experts; ++e) c.owner.push_back(e * c.ranks() / experts);
  return c;
}

TEST(MoeOperator, AnyRanksPlacementsAndProcessorsGiveTheBitsOfTheBulkLayer) {
  std::mt19937 random(3);
  const auto below = [&](int n) { return int(random() % uint32_t(n)); };
  const nn::VanillaPolicy vanilla;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (int trial = 0; trial < 60; ++trial) {
      const int experts = 1 + below(9), k = 1 + below(std::min(experts, 4));
      PolledCase c;
      for (int r = 1 + below(5); r > 0; --r) c.tokens.push_back(below(4) == 0 ? 0 : below(40));
      for (int e = 0; e < experts; ++e) c.owner.push_back(below(c.ranks()));
      c.manner = {1 + below(4), 1 + below(3), 1 + below(3), 1 + below(3), 1 + below(9)};
      c.tile = 1 + below(12);
      c.window = below(4);
      if (below(2)) c.capacity = 40;
      c.order = kOrders[trial % 3];
      c.seed = uint32_t(trial);
      const nn::Router gate = router(experts, k, uint32_t(trial));
      std::vector<nn::ExpertWeights> weights;
      std::vector<LayerInput> layers;
      for (uint32_t l = 0; l < 3; ++l) weights.push_back(bank(experts, 100 * l, dtype));
      weights[1].shared = {};
      for (uint32_t l = 0; l < 3; ++l)
        layers.push_back(
            {ops::cast(normal({c.all(), 32}, 9 + l), dtype), &gate, &vanilla, &weights[l]});
      expect_bulk(c, layers, "trial " + std::to_string(trial));
    }
}

TEST(MoeOperator, TilesMayBeFullOrNot) {
  const nn::VanillaPolicy vanilla;
  const nn::Router gate = router(1, 1, 1);  // all to the same expert
  const nn::ExpertWeights weights = bank(1, 5, DType::f32);
  for (const int64_t tokens : {0, 1, 7, 8, 9, 15, 16, 17, 24})
    for (const Order order : kOrders) {
      PolledCase c = blocks_of(1, {tokens, 0, tokens}, 2);
      c.tile = 8;
      c.order = order;
      expect_bulk(c, {{normal({2 * tokens, 32}, 3), &gate, &vanilla, &weights}},
                  std::to_string(tokens));
    }
}

TEST(MoeOperator, HardCases) {
  const nn::VanillaPolicy vanilla;
  struct Hard {
    const char* name;
    int experts, k;
    std::vector<int64_t> tokens;
    bool alike = false;  // equal tokens, so all go to the same experts
  };
  for (const Hard& h : {Hard{"all tokens to one expert", 4, 1, {20, 20, 20, 20}, true},
                        {"ranks without tokens", 6, 2, {0, 31, 0}},
                        {"no tokens at all", 6, 2, {0, 0, 0}},
                        {"fewer tokens than a tile", 4, 2, {1, 2}},
                        {"k = 1", 5, 1, {9, 14}},
                        {"k = E", 6, 6, {9, 14}},
                        {"one expert a rank", 4, 2, {11, 12, 13, 14}},
                        {"one rank", 5, 2, {33}},
                        {"more ranks than experts", 2, 1, {5, 6, 7, 8}}})
    for (const Order order : kOrders)
      for (const bool shared : {false, true}) {
        PolledCase c = blocks_of(h.experts, h.tokens, 7);
        c.order = order;
        c.manner.processors = 2;
        c.tile = shared ? 16 : 3;
        c.window = shared ? 0 : 1;
        nn::ExpertWeights weights = bank(h.experts, 4, DType::f32);
        if (!shared) weights.shared = {};
        nn::Tensor x = normal({c.all(), 32}, 8);
        for (int64_t t = 1; h.alike && t < c.all(); ++t)
          tensor::copy_into(x.slice(0, t, t + 1), x.slice(0, 0, 1));
        const nn::Router gate = router(h.experts, h.k, 6);
        expect_bulk(c, {{x, &gate, &vanilla, &weights}, {x, &gate, &vanilla, &weights}}, h.name);
      }
}

TEST(MoeOperator, EveryKindOfRouterAndPolicy) {
  constexpr int kExperts = 8;
  nn::Router softmax = router(kExperts, 3, 1), sigmoid = softmax, groups = softmax;
  softmax.options.renormalise = true;
  sigmoid.options.score = groups.options.score = ops::RoutingOptions::Score::sigmoid;
  sigmoid.options.scale = 2.5f;
  sigmoid.options.bias = normal({kExperts}, 12, 0.1f);
  groups.options.groups = 4;
  groups.options.top_groups = 2;
  const nn::ExpertWeights weights = bank(kExperts, 3, DType::f32);
  const auto selection = [](const char* text) {
    auto policy = std::make_shared<nn::SelectionPolicy>(nn::parse_selection(text));
    policy->restrict_to({{0, nn::kAllTokens}});
    return policy;
  };
  const auto vanilla = std::make_shared<nn::VanillaPolicy>();
  const std::vector<std::shared_ptr<const nn::ExpertPolicy>> policies{
      vanilla,
      selection("des-vote:0.4"),
      selection("des-seq:1"),
      selection("naee:0.4"),
      selection("mc:0.4,0.25,0.25"),
      std::make_shared<nn::ExpertChoice>(),
      std::make_shared<nn::CapacityPolicy>(vanilla, 5)};
  for (const nn::Router* gate : {&softmax, &sigmoid, &groups})
    for (size_t p = 0; p < policies.size(); ++p) {
      PolledCase c = blocks_of(kExperts, {13, 0, 22}, uint32_t(p));
      c.order = kOrders[p % 3];
      c.manner.processors = 3;
      if (p == 6) c.capacity = 5;
      if (p == 5) c.capacity = 35;  // as many experts per token as exist
      expect_bulk(c, {{normal({35, 32}, 4), gate, policies[p].get(), &weights}},
                  "policy " + std::to_string(p));
    }
}

// Rows in another order give results in this order, bit-identical, on any ranks.
TEST(MoeOperator, AnotherOrderOfTokensIsThatOrderOfResults) {
  constexpr int64_t kAll = 50, kHidden = 32;
  const nn::VanillaPolicy vanilla;
  const nn::Router gate = router(7, 3, 2);
  const nn::ExpertWeights weights = bank(7, 4, DType::f32);
  std::vector<float> rows = normal({kAll, kHidden}, 6).to_floats(), mixed;
  std::vector<int64_t> order(kAll);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(8));
  for (const int64_t t : order)
    mixed.insert(mixed.end(), rows.begin() + t * kHidden, rows.begin() + (t + 1) * kHidden);
  const auto through = [&](const std::vector<float>& tokens) {
    PolledRanks ranks(blocks_of(7, {13, 0, 37}, 5), 3, kHidden * 4);
    const nn::Tensor x = nn::Tensor::from(std::span<const float>(tokens), {kAll, kHidden});
    return ranks.run({{x, &gate, &vanilla, &weights}})[0];
  };
  const std::vector<float> straight = through(rows), got = through(mixed);
  ASSERT_EQ(got.size(), straight.size());
  for (int64_t i = 0; i < kAll; ++i)
    for (int64_t c = 0; c < kHidden; ++c)
      ASSERT_EQ(got[size_t(i * kHidden + c)], straight[size_t(order[size_t(i)] * kHidden + c)])
          << i;
}

TEST(MoeOperator, Int8WeightsToo) {
  const nn::VanillaPolicy vanilla;
  const nn::Router gate = router(6, 2, 2);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    nn::ExpertWeights weights = bank(6, 3, dtype);
    std::vector<ops::Expert> small;
    for (uint32_t e = 0; e < 6; ++e)
      small.push_back(
          {ops::pack_paired_weight(normal({16, 32}, e), normal({16, 32}, e + 9), DType::i8),
           ops::pack_weight(normal({32, 16}, e + 20), DType::i8)});
    weights.routed = std::make_shared<const std::vector<ops::Expert>>(std::move(small));
    expect_bulk(blocks_of(6, {10, 3, 21}, 3),
                {{ops::cast(normal({34, 32}, 4), dtype), &gate, &vanilla, &weights}}, "int8");
  }
}

TEST(MoeOperator, RefusesWhatDoesNotFit) {
  struct Nowhere final : SymmetricHeap {
    using SymmetricHeap::SymmetricHeap;
    void put(const Transfer&) override {}
    void signal(const Transfer&) override {}
    void put_signal(const Transfer&) override {}
  };
  const Layout layout = Layout::fixed(2, 2, 3, 128, {2});
  const nn::Tensor buffer = nn::Tensor::zeros({layout.bytes()}, DType::u8);
  Nowhere heap(nullptr, 0, static_cast<std::byte*>(buffer.raw()));
  const auto made = [&](std::vector<int> owner) {
    return MoeOperator(layout, std::move(owner), 10, {}, heap);
  };
  const auto says = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::usage);
      return e.what();
    }
    return "nothing";
  };
  const auto expect = [&](const auto& call, const char* part) {
    EXPECT_NE(says(call).find(part), std::string::npos) << says(call);
  };
  expect([&] { made({0, 0, 0, 1}); }, "more than the 2 experts");
  expect([&] { made({0, 2}); }, "rank 2 of 2");
  MoeOperator one = made({0, 0, 1});
  const nn::VanillaPolicy vanilla;
  const nn::TokenView view;
  const nn::MoeCall call{0, {}, view};
  const nn::Router router3 = router(3, 3, 1);
  const nn::Gate gate(router3, vanilla, call);
  const nn::ExpertWeights weights = bank(3, 1, DType::f32);
  expect([&] { one.begin(normal({11, 32}, 1), gate, weights); }, "at most 10 rows");
  expect([&] { one.begin(normal({5, 31}, 1), gate, weights); }, "expected at most 10 rows of 128");
  expect([&] { one.begin(normal({5, 32}, 1), gate, bank(4, 1, DType::f32)); }, "4 experts; 3");
  expect(
      [&] {
        one.begin(normal({5, 32}, 1), gate, bank(3, 1, DType::f32, {true, false, true}));
      },
      "weights of expert 1");
  expect([&] { (void)one.result(); }, "not done");
  one.begin(normal({5, 32}, 1), gate, weights);  // k = E: five rows for each
  expect([&] { one.begin(normal({5, 32}, 1), gate, weights); }, "before is not done");
  expect([&] { one.work(0); }, "5 rows for one expert of rank 0");
  expect(
      [&] {
        MoeOperator(layout, {0, 0, 1}, 10, {.slots = 0}, heap);
      },
      "0 processors, parts, slots");
}

}  // namespace
}  // namespace tessera::fused
