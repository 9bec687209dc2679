// A forward pass of LLaDA-MoE at full width (2048, 16 heads, 64 experts of 1024, 157184 ids) with
// random weights and few layers: logits of every position, bf16.
//   llada_bench [threads] [tokens[xlayers[xids]]] [rule] [bf16|i8] [times]
// With a rule, passes with and without the rule run in turn, and the pass is predicted from its
// layers.
#include <algorithm>
#include <cstdio>
#include <vector>

#include "bench.h"
#include "models/llada.h"
#include "models/random_weights.h"
#include "nn/kv_attention.h"
#include "nn/moe/moe_layers.h"
#include "nn/moe/selection_policy.h"

using namespace tessera;
using tensor::DType;
using tensor::Tensor;

namespace {

models::LladaConfig config_of(int64_t layers, int64_t ids) {
  models::LladaConfig c;
  c.vocabulary = ids;
  c.hidden = 2048;
  c.heads = c.kv_heads = 16;
  c.head_dim = 128;
  c.rotary_pairs = 64;
  c.sparse.assign(static_cast<size_t>(layers), true);
  c.expert_width = 1024;
  c.experts = 64;
  c.top_k = 8;
  return c;
}

/// Experts that measure their time.
class Clocked : public nn::Experts {
 public:
  explicit Clocked(const nn::SelectionRule& rule) {
    const auto policy = std::make_shared<nn::SelectionPolicy>(rule);
    policy->restrict_to({{0, nn::kAllTokens}});
    layers_ = std::make_unique<nn::MoeLayers>(policy, std::make_unique<nn::LocalBackend>());
  }
  Tensor apply(int site, const nn::TokenView& view, const Tensor& tokens, const nn::Router& router,
               const nn::ExpertWeights& weights) override {
    Tensor out;
    seconds += kernels::best_seconds(
        [&] { out = layers_->apply(site, view, tokens, router, weights); }, 1);
    return out;
  }
  double seconds = 0;

 private:
  std::unique_ptr<nn::MoeLayers> layers_;
};

struct Pass {
  double whole = 0, experts = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const bench::Threads threads(argc, argv);
  long tokens = 64, layers = 2, ids = 157184;
  if (argc > 2) std::sscanf(argv[2], "%ldx%ldx%ld", &tokens, &layers, &ids);
  const std::string rule = argc > 3 ? argv[3] : "vanilla";
  const DType experts = argc > 4 && std::string(argv[4]) == "i8" ? DType::i8 : DType::bf16;
  const int times = argc > 5 ? std::atoi(argv[5]) : 3;
  nn::Portion portion{{0, layers}, true, true};
  portion.expert_dtype = experts;
  const models::Llada model(config_of(layers, ids), bench::RandomWeights(), portion, DType::bf16);
  std::vector<int32_t> text;
  for (long i = 0; i < tokens; ++i) text.push_back(static_cast<int32_t>(i * 977 % ids));
  const nn::TokenView view{-1, {0}, {}, {{0, {0, tokens}}}, {tokens}};
  auto forward = [&](const std::string& select) {
    nn::KvAttention attention(model.geometry(), nn::sequences_of_lengths(view.lengths));
    Clocked clocked(nn::parse_selection(select));
    const double whole = kernels::best_seconds(
        [&] {
          const auto placement = model.place(view);
          nn::Hidden hidden = model.embed(text, view);
          for (int b = 0; b < model.geometry().blocks; ++b)
            model.block(b, {}, *placement, hidden, {attention, clocked});
          model.logits(hidden, view, view.body);
        },
        1);
    return Pass{whole, clocked.seconds};
  };
  std::vector<double> whole, layer, with_whole, with_layer;
  for (int i = 0; i <= times; ++i) {
    const Pass plain = forward("vanilla"), with = rule == "vanilla" ? plain : forward(rule);
    if (i == 0) continue;  // warm-up
    whole.push_back(plain.whole);
    layer.push_back(plain.experts);
    with_whole.push_back(with.whole);
    with_layer.push_back(with.experts);
  }
  const double best = *std::min_element(whole.begin(), whole.end());
  std::string line = fmt::format(
      "{{\"bench\":\"llada {}\",\"shape\":\"{}x{}x{}\",\"threads\":{},\"ms\":{:.2f},"
      "\"median_ms\":{:.2f},\"experts_ms\":{:.2f}",
      tensor::name_of(experts), tokens, layers, ids, tensor::thread_count(), best * 1e3,
      bench::median(whole) * 1e3, bench::median(layer) * 1e3);
  if (rule != "vanilla") {
    const double ratio = bench::median(with_layer) / bench::median(layer);
    const double prediction =
        bench::median(whole) - bench::median(layer) + bench::median(layer) * ratio;
    line += fmt::format(
        ",\"rule\":\"{}\",\"rule_median_ms\":{:.2f},\"rule_experts_ms\":{:.2f},"
        "\"predicted_ms\":{:.2f},\"measured_over_predicted\":{:.3f}",
        rule, bench::median(with_whole) * 1e3, bench::median(with_layer) * 1e3, prediction * 1e3,
        bench::median(with_whole) / prediction);
  }
  std::puts((line + "}").c_str());
}
