#include <numeric>
#include <random>

#include "base/fail.h"
#include "tessera/engine.h"
#include "whole/canvas_model.h"

// DiffusionGemma with random small sizes under plans: bit-identical to a single rank, or refused by
// name.
namespace tessera {
namespace {

using base::Json;

constexpr uint32_t kSeeds = 20;       // TESSERA_CANVAS_SEEDS: more, such as 200
constexpr uint32_t kFewTokens = 161;  // an untied model's canvas of 2 tokens on 3 ranks

std::vector<uint32_t> seeds() {
  const char* more = std::getenv("TESSERA_CANVAS_SEEDS");
  std::vector<uint32_t> all(more ? static_cast<size_t>(std::atoi(more)) : kSeeds);
  std::iota(all.begin(), all.end(), 0u);
  all.push_back(kFewTokens);
  return all;
}

class Draw {
 public:
  explicit Draw(uint32_t seed) : rng_(seed) {}
  int64_t from_to(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(rng_() % static_cast<uint32_t>(most - least + 1));
  }
  double between(double least, double most) {
    return least + (most - least) * double(rng_() % 1000) / 1000;
  }
  bool chance(int percent) { return from_to(0, 99) < percent; }
  int64_t divisor(int64_t of) {
    int64_t found = 0;
    while (found == 0 || of % found != 0) found = from_to(1, of);
    return found;
  }

 private:
  std::mt19937 rng_;
};

Json text_config(Draw& draw) {
  const int64_t heads = draw.from_to(1, 6), layers = draw.from_to(1, 4),
                experts = draw.from_to(1, 12);
  Json types = Json::array();
  for (int64_t l = 0; l < layers; ++l)
    types.push_back(draw.chance(60) ? "sliding_attention" : "full_attention");
  return {{"model_type", "diffusion_gemma_text"},
          {"vocab_size", draw.from_to(11, 60)},
          {"hidden_size", draw.from_to(8, 48)},
          {"intermediate_size", draw.from_to(1, 40)},
          {"moe_intermediate_size", draw.from_to(1, 24)},
          {"num_hidden_layers", layers},
          {"num_attention_heads", heads},
          {"num_key_value_heads", draw.divisor(heads)},
          {"num_global_key_value_heads", draw.divisor(heads)},
          {"head_dim", 2 * draw.from_to(1, 12)},
          {"global_head_dim", 2 * draw.from_to(1, 20)},
          {"num_experts", experts},
          {"top_k_experts", draw.from_to(1, std::min<int64_t>(experts, 4))},
          {"sliding_window", draw.from_to(1, 14)},
          {"layer_types", types},
          {"final_logit_softcapping", draw.between(1, 40)},
          {"max_position_embeddings", 256}};
}

Json config_of(Draw& draw) {
  Json text = text_config(draw);
  const bool tied = draw.chance(70);
  if (!tied) text["attention_bias"] = draw.chance(50);
  text["rope_parameters"] = {{"full_attention",
                              {{"rope_type", "proportional"},
                               {"rope_theta", draw.between(10, 1e6)},
                               {"partial_rotary_factor", draw.between(0, 1)}}}};
  return {{"model_type", "diffusion_gemma"},
          {"architectures", {"DiffusionGemmaForBlockDiffusion"}},
          {"text_config", text},
          {"canvas_length", draw.from_to(1, 12)},
          {"tie_word_embeddings", tied}};
}

CompleteRequest request_of(Draw& draw, const models::TokenSpec& spec) {
  CompleteRequest q;
  for (int64_t i = draw.from_to(1, 3); i > 0; --i) {
    std::vector<int32_t> ids;
    for (int64_t t = draw.from_to(1, 20); t > 0; --t)
      ids.push_back(static_cast<int32_t>(draw.from_to(0, spec.vocabulary - 1)));
    q.prompt_ids.push_back(ids);
  }
  q.max_tokens = draw.from_to(1, 3 * spec.block);
  q.seed = static_cast<uint64_t>(draw.from_to(0, 1000));
  q.n = static_cast<int>(draw.from_to(1, 2));
  q.as_published = draw.chance(30);
  q.decode = fmt::format("canvas:max_denoising_steps={},entropy_bound={},t_max={},t_min={}",
                         draw.from_to(1, 5), draw.between(0, 4), draw.between(0.6, 2),
                         draw.between(0, 0.5));
  const char* const rules[] = {"topk:1",      "des-seq:1",       "des-vote:0.5",  "des-max:0.5",
                               "naee:0.5",    "mc:0.5,0.1,0.3",  "des-norm4:0.5", "des-peak:0.1",
                               "des-max:0.7", "des-vote:0.6,k=1"};
  // half of a single expert is none
  if (spec.experts > 1 && draw.chance(60))
    q.select = rules[draw.from_to(0, 9)] + std::string(draw.chance(50) ? ",over=open" : "");
  return q;
}

CompleteResult run(const golden::CanvasModel& model, const CompleteRequest& request,
                   const std::string& plan, int threads = 1) {
  RunOptions options = golden::options(Precision::f32, threads);
  options.plan = parse_plan(plan);
  return Model::open(model.path(), options).complete(request);
}

void expect_same(const CompleteResult& a, const CompleteResult& b) {
  ASSERT_EQ(a.completions.size(), b.completions.size());
  EXPECT_EQ(a.experts_read, b.experts_read);
  for (size_t i = 0; i < a.completions.size(); ++i) {
    const Completion &one = a.completions[i], &many = b.completions[i];
    EXPECT_EQ(one.ids, many.ids);
    EXPECT_EQ(one.confidences, many.confidences);
    ASSERT_EQ(one.passes.size(), many.passes.size());
    for (size_t p = 0; p < one.passes.size(); ++p) {
      EXPECT_EQ(one.passes[p].committed, many.passes[p].committed);
      EXPECT_EQ(one.passes[p].experts, many.passes[p].experts);
    }
  }
}

TEST(CanvasPlans, RandomSizesGiveTheRunOfOneRank) {
  int64_t compared = 0;
  for (const uint32_t seed : seeds()) {
    Draw draw(seed);
    const Json config = config_of(draw);
    const golden::CanvasModel model(config, seed);
    const CompleteRequest q = request_of(draw, model.spec);
    SCOPED_TRACE(fmt::format("seed {} {} {} select {}", seed, config.dump(), q.decode, q.select));
    const CompleteResult one = run(model, q, "");
    expect_same(one, run(model, q, "", 3));
    for (const char* plan : {"expert=2", "expert=3", "expert=2,moe=fused", "expert=3,moe=fused"}) {
      SCOPED_TRACE(plan);
      try {
        expect_same(one, run(model, q, plan));
        ++compared;
      } catch (const Error& error) {  // more ranks than experts
        EXPECT_EQ(error.code(), ErrorCode::plan) << error.what();
        EXPECT_LT(model.spec.experts, plan[7] - '0') << error.what();
      }
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(compared, 2 * std::ssize(seeds()));
}

// A sum over shards rounds differently: compares confidences of the first pass of a canvas.
TEST(CanvasPlans, ShardsOfRandomSizesAreNearOneRankOrRefused) {
  int64_t compared = 0;
  for (const uint32_t seed : seeds()) {
    Draw draw(1000 + seed);
    const Json config = config_of(draw);
    const golden::CanvasModel model(config, seed);
    CompleteRequest q = request_of(draw, model.spec);
    q.select = "vanilla";
    q.max_tokens = model.spec.block;
    q.decode = "canvas:max_denoising_steps=1";
    SCOPED_TRACE(fmt::format("seed {} {}", seed, config.dump()));
    const CompleteResult one = run(model, q, "");
    for (const char* plan : {"tensor=2", "tensor=3"}) {
      SCOPED_TRACE(plan);
      CompleteResult many;
      try {
        many = run(model, q, plan);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::plan) << error.what();
        EXPECT_NE(std::string(error.what()).find("tensor"), std::string::npos) << error.what();
        continue;
      }
      ++compared;
      for (size_t i = 0; i < one.completions.size(); ++i)
        for (size_t t = 0; t < one.completions[i].ids.size(); ++t)
          EXPECT_NEAR(one.completions[i].confidences[t], many.completions[i].confidences[t], 1e-4);
      expect_same(many, run(model, q, plan));
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(compared, std::ssize(seeds()) / 5);
}

}  // namespace
}  // namespace tessera
