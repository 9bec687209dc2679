#include <string>

#include "base/json.h"
#include "nn/moe/expert_selection.h"
#include "test_paths.h"
#include "whole/golden.h"

// Coresets, choices and weights of every rule on random and on tied logits, against the golden
// results.
namespace tessera {
namespace {

using nn::SelectionRule;
using tensor::Tensor;

class Case {
 public:
  explicit Case(const std::string& name)
      : folder_(std::string(TESSERA_TEST_DATA) + "/moe/" + name),
        json(base::read_json(folder_ + "/case.json")),
        io_(folder_ + "/io.safetensors"),
        sigmoid(name == "des_sigmoid") {}
  bool has(const std::string& name) const { return io_.entries().contains(name); }
  Tensor operator[](const std::string& name) const { return io_.get(name); }

 private:
  std::string folder_;

 public:
  base::Json json;

 private:
  load::SafetensorsFile io_;

 public:
  bool sigmoid;
};

ops::RoutingOptions router_of(const Case& golden, const base::Json& shape) {
  ops::RoutingOptions o{.top_k = shape.at("top_k").get<int>()};
  if (!golden.sigmoid) return o;
  o.score = ops::RoutingOptions::Score::sigmoid;
  o.renormalise = true;
  o.scale = shape.value("routed_scaling_factor", 2.5f);
  o.bias = golden[shape.at("prefix").get<std::string>() + "bias"];
  o.groups = shape.at("n_group").get<int>();
  o.top_groups = shape.at("topk_group").get<int>();
  return o;
}

struct Made {
  ops::Routing routing;
  std::vector<uint8_t> core;
};

Made select(const Case& golden, const base::Json& shape, const SelectionRule& rule) {
  const std::string prefix = shape.at("prefix").get<std::string>();
  const Tensor logits = golden[prefix + "logits"];
  const std::vector<int32_t> one(static_cast<size_t>(logits.size(0)));
  Tensor importance;
  if (golden.has(prefix + "importance")) importance = golden[prefix + "importance"];
  std::vector<std::vector<uint8_t>> cores;
  Made made{nn::select_experts(logits, router_of(golden, shape), rule, {one, importance}, &cores),
            {}};
  made.core = cores.at(0);
  return made;
}

std::vector<float> columns(const Tensor& x, int64_t count) {
  std::vector<float> values;
  for (int64_t r = 0; r < x.size(0); ++r)
    for (int64_t c = 0; c < count; ++c) values.push_back(x.row<float>(r)[c]);
  return values;
}

// Compares ids exactly, weights within rounding; slots missing in the golden table are empty.
void expect_routing(const Case& golden, const ops::Routing& made, const std::string& index,
                    const std::string& weights) {
  const Tensor ids = golden[index], expected = golden[weights];
  for (int64_t t = 0; t < ids.size(0); ++t)
    for (int64_t j = 0; j < made.ids.size(1); ++j) {
      const int32_t want = j < ids.size(1) ? ids.row<int32_t>(t)[j] : -1;
      ASSERT_EQ(made.ids.row<int32_t>(t)[j], want) << index << " token " << t << " slot " << j;
    }
  EXPECT_LT(golden::max_error(columns(made.weights, ids.size(1)), expected.to_floats()), 3e-6)
      << weights;
}

std::vector<std::pair<std::string, SelectionRule>> coresets(const base::Json& shape) {
  std::vector<std::pair<std::string, SelectionRule>> all;
  for (int k = 1; k <= shape.at("top_k").get<int>(); ++k)
    all.push_back({"seq_" + std::to_string(k), {.method = SelectionRule::Method::seq, .k = k}});
  for (const auto& beta : shape.at("betas")) {
    const double value = beta.get<double>();
    const std::string text = beta.dump();
    using M = SelectionRule::Method;
    all.push_back({"vote_" + text, {.method = M::vote, .beta = value}});
    all.push_back({"vote_max_" + text, {.method = M::vote_max, .beta = value}});
    all.push_back({"vote_norm4_" + text, {.method = M::vote_norm4, .beta = value}});
  }
  return all;
}

void check_coresets(const Case& golden, const base::Json& shape) {
  const std::string prefix = shape.at("prefix").get<std::string>();
  using G = SelectionRule::Groups;
  using W = SelectionRule::Weights;
  const std::pair<std::string, G> limits[] = {
      {"", G::masked}, {"groups_vanilla.", G::vanilla}, {"groups_none.", G::none}};
  const std::pair<std::string, W> modes[] = {{"A", W::a}, {"B", W::b}, {"D", W::d}};
  int checked = 0;
  for (auto [name, rule] : coresets(shape)) {
    const std::string base = prefix + name + ".";
    ASSERT_TRUE(golden.has(base + "core")) << base;
    const tensor::Tensor stored = golden[base + "core"];
    const auto* core = stored.data<uint8_t>();
    for (const auto& [limit, groups] : limits)
      for (const auto& [mode, weights] : modes) {
        if (!golden.has(base + limit + "weights." + mode)) continue;
        rule.groups = groups;
        rule.weights = weights;
        const Made made = select(golden, shape, rule);
        EXPECT_TRUE(std::equal(made.core.begin(), made.core.end(), core)) << base;
        expect_routing(golden, made.routing, base + limit + "index",
                       base + limit + "weights." + mode);
        ++checked;
      }
  }
  EXPECT_GE(checked, 1) << prefix;
}

void check_baselines(const Case& golden, const base::Json& shape) {
  const std::string prefix = shape.at("prefix").get<std::string>();
  using M = SelectionRule::Method;
  auto check = [&](const std::string& name, const SelectionRule& rule) {
    if (!golden.has(prefix + name + ".index")) return 0;
    const Made made = select(golden, shape, rule);
    expect_routing(golden, made.routing, prefix + name + ".index", prefix + name + ".weights");
    return 1;
  };
  int checked = check("vanilla", {});
  for (int k = 1; k < shape.at("top_k").get<int>(); ++k)
    checked += check("topk_" + std::to_string(k), {.method = M::topk, .k = k});
  for (const char* text : {"0.0", "0.2", "0.4", "0.6"})
    for (bool again : {false, true}) {
      const double beta = std::stod(text);
      const std::string tail = std::string(text) + (again ? ".renormalised" : "");
      checked += check("naee_" + tail, {.method = M::naee, .beta = beta, .renormalise = again});
      checked += check("mc_" + tail, {.method = M::mc, .beta = beta, .renormalise = again});
      checked += check("mc_low_" + tail,
                       {.method = M::mc, .beta = beta, .low = 0.1, .renormalise = again});
    }
  EXPECT_GE(checked, shape.contains("coreset_sizes") ? 11 : 1) << prefix;
}

void check_case(const std::string& name) {
  const Case golden(name);
  for (const char* group : {"shapes", "ties"}) {
    EXPECT_GE(golden.json.at(group).size(), 1u) << name;
    for (const auto& shape : golden.json.at(group)) {
      check_coresets(golden, shape);
      check_baselines(golden, shape);
    }
  }
}

TEST(DesGolden, SoftmaxRouter) { check_case("des_softmax"); }
TEST(DesGolden, SigmoidRouterWithGroups) { check_case("des_sigmoid"); }

}  // namespace
}  // namespace tessera
