#include <set>

#include "nn/moe/sequence_usage.h"
#include "parallel/decode.h"
#include "whole/llada_golden.h"

// Every golden decoding run: tokens, forward passes, commits and experts exactly.
namespace tessera {
namespace {

using base::Json;
using sample::DecodingPolicy;

DecodingPolicy policy_of(const Json& run, bool block_causal, int block) {
  DecodingPolicy p;
  p.block = block;
  p.threshold = run.value("threshold", p.threshold);
  p.as_published = true;
  if (block_causal) {
    p.steps = run.at("steps").get<int>();
    if (run.contains("editing_threshold")) p.rule = DecodingPolicy::Rule::edit;
    p.editing = run.value("editing_threshold", p.editing);
    p.posts = run.value("max_post_steps", p.posts);
    p.cache.kind = run.at("cached").get<bool>() ? KvCache::block : KvCache::none;
    p.stop = choice_of<StopAtEos>(run.at("eos").get<std::string>(), "eos");
    return p;
  }
  const std::string rule = run.at("rule").get<std::string>();
  using Rule = DecodingPolicy::Rule;
  p.rule = rule == "steps"       ? Rule::steps
           : rule == "factor"    ? Rule::factor
           : rule == "hierarchy" ? Rule::hierarchy
           : rule == "credit"    ? Rule::credit
                                 : Rule::threshold;
  p.steps = run.value("steps_per_block", 0);
  p.factor = run.value("factor", p.factor);
  p.commit_last_failing = run.value("commit_last_failing", false);
  p.low = run.value("low_threshold", p.low);
  p.alpha = run.value("alpha", p.alpha);
  p.gamma = run.value("gamma", p.gamma);
  p.beta = p.rule == Rule::credit ? run.value("beta", p.beta) : p.beta;
  const std::string cache = run.at("cache").get<std::string>();
  if (cache == "vicinity") {
    p.cache = {KvCache::vicinity, run.at("prefix_look").get<int>(), run.at("after_look").get<int>(),
               run.at("warmup_steps").get<int>()};
  } else {
    p.cache = parse_cache(cache);
  }
  if (run.value("early_stop", false)) p.stop = StopAtEos::block;
  return p;
}

nn::SelectionRule selection_of(const Json& run) {
  const std::string method = run.value("method", "vanilla");
  nn::SelectionRule rule;
  using M = nn::SelectionRule::Method;
  rule.method = method == "seq"          ? M::seq
                : method == "vote"       ? M::vote
                : method == "vote_max"   ? M::vote_max
                : method == "vote_norm4" ? M::vote_norm4
                                         : M::vanilla;
  rule.k = run.value("k", 0);
  if (rule.method != M::seq && rule.method != M::vanilla) rule.beta = run.at("beta").get<double>();
  const std::string weights = run.value("weights", "D");
  using W = nn::SelectionRule::Weights;
  rule.weights = weights == "A" ? W::a : weights == "B" ? W::b : W::d;
  const std::string groups = run.value("group_mode", "masked");
  using G = nn::SelectionRule::Groups;
  rule.groups = groups == "vanilla" ? G::vanilla : groups == "none" ? G::none : G::masked;
  return rule;
}

// A forward pass in the form of the case.
Json record(const sample::SequencePass& p, const std::vector<nn::SequenceUsage::Use>& uses) {
  Json commits = Json::array(), experts = Json::array();
  for (const auto& c : p.commits) commits.push_back({c.position, c.token});
  for (const auto& use : uses) experts.push_back(use.distinct);
  return {{"kind", word_of(p.pass.kind)},
          {"from", p.pass.ids.begin},
          {"to", p.pass.ids.end},
          {"commit", commits},
          {"unique_experts", experts}};
}

/// The strategies of a single rank, and the experts used by sequences.
struct Rig {
  Rig(const nn::TokenModel& model, std::vector<int64_t> lengths, const nn::SelectionRule& rule)
      : setup({}, model.geometry(), {.text = {{std::move(lengths), rule}}}) {
    setup.experts->log().watch([this](const nn::MoeWork& work) { usage.see(work); });
  }
  parallel::Setup setup;
  nn::SequenceUsage usage;
};

void check_run(const golden::LladaCase& golden, const Json& run, const nn::TokenModel& model,
               bool block_causal) {
  const auto spec = golden.spec(run.value("model", "model"));
  const DecodingPolicy policy =
      policy_of(run, block_causal, golden.json.at("block_length").get<int>());
  const sample::SpecialIds special{*spec.mask, spec.ends};
  const std::vector<sample::TokenPrompt> prompts{
      {run.at("prompt").get<std::vector<int32_t>>(), golden.json.at("gen_length").get<int64_t>()}};
  const bool own = spec.routing.block > 0;  // true: the model's rule covers every pass
  Rig rig(model, sample::sequence_lengths(prompts, policy, block_causal),
          own ? spec.routing : selection_of(run));
  std::set<std::string> shared_in;
  for (const auto& kind : run.value("shared_in", Json::array())) shared_in.insert(kind);
  Json forwards = Json::array();
  std::vector<float> decided;
  std::vector<int64_t> places;  // places of their rows among all blocks' positions
  int64_t calls = 0;
  sample::DecodeControl control;
  control.before = [&](const std::vector<sample::SequencePass>& passes) {
    std::map<int, nn::Range> sequences;
    for (const auto& p : passes)
      if (own || shared_in.contains(word_of(p.pass.kind))) sequences[p.sequence] = nn::kAllTokens;
    rig.setup.policy->restrict_to(sequences);
  };
  control.after = [&](const sample::SequencePass& p, const sample::BlockWalk&,
                      const tensor::Tensor& logits) {
    forwards.push_back(record(p, rig.usage.take()));
    const auto values = logits.to_floats();
    decided.insert(decided.end(), values.begin(), values.end());
    for (const int64_t at : p.open)
      places.push_back(calls * policy.block + at - p.pass.decide.begin);
    calls += p.open.empty() ? 0 : 1;
    return true;
  };
  const auto out = parallel::decode(model, prompts, policy, special, rig.setup, control);
  const auto expected = run.at("tokens").get<std::vector<int32_t>>();
  EXPECT_EQ(block_causal ? out[0].generated : out[0].ids, expected);
  EXPECT_EQ(forwards, run.at("forwards"));
  EXPECT_EQ(out[0].passes, run.at("nfe").at("total").get<int64_t>());
  if (!run.contains("logits")) return;
  const auto all = golden.io.get(run.at("logits").get<std::string>());
  EXPECT_EQ(all.size(0), calls);
  const auto rows = all.reshape({all.size(0) * all.size(1), all.size(2)});
  std::vector<float> expected_logits;
  for (const int64_t place : places) {
    const auto row = rows.slice(0, place, place + 1).to_floats();
    expected_logits.insert(expected_logits.end(), row.begin(), row.end());
  }
  EXPECT_LT(golden::max_error(decided, expected_logits), 1e-4);
}

void check_case(const std::string& name, bool block_causal, size_t runs) {
  const golden::LladaCase golden(name);
  const int block = golden.json.at("block_length").get<int>();
  std::map<std::string, std::unique_ptr<nn::TokenModel>> models;
  EXPECT_EQ(golden.json.at("runs").size(), runs);
  for (const auto& run : golden.json.at("runs")) {
    SCOPED_TRACE(name + " " + run.at("name").get<std::string>());
    const std::string part = run.value("model", "model");
    if (!models.contains(part)) models[part] = golden.load(part, block);
    check_run(golden, run, *models[part], block_causal);
  }
}

TEST(LladaDecodeGolden, LladaMoe) { check_case("llada_moe", false, 24); }
TEST(LladaDecodeGolden, Llada2) { check_case("llada2", true, 16); }
TEST(LladaDecodeGolden, LladaMoeSharesExperts) { check_case("des_llada_moe", false, 15); }
TEST(LladaDecodeGolden, Llada2SharesExperts) { check_case("des_llada2", true, 12); }

// Configurations as released classes read them: keys in other places, left out, or without effect.
TEST(LladaDecodeGolden, RotaryParametersInAnObject) {
  check_case("llada2_rope_parameters", true, 8);
}
TEST(LladaDecodeGolden, DefaultsOfTheReleasedClass) {
  check_case("llada2_class_defaults", true, 8);
}
TEST(LladaDecodeGolden, OneExpertAToken) { check_case("llada2_top1", true, 8); }
// Later releases: LLaDA2.1 and LLaDA2.2.
TEST(LladaDecodeGolden, TokensAreEdited) { check_case("llada21_editing", true, 6); }
TEST(LladaDecodeGolden, BlocksShareExperts) { check_case("llada22_block_routing", true, 8); }
TEST(LladaDecodeGolden, KeysThatTheReleasedCodeIgnores) {
  golden::LladaCase golden("llada_moe");
  golden.changes = {{"norm_topk_prob", true},
                    {"rotary_dim", 8},
                    {"routed_scaling_factor", 2.0},
                    {"dense_intermediate_size", 40}};
  const Json& run = golden.json.at("runs").front();
  check_run(golden, run, *golden.load(run.value("model", "model")), false);
}

struct Outcome {
  std::vector<sample::Decoded> out;
  std::vector<float> decided;  // logits of all decisions of prompt 0
};

Outcome run_plain(const nn::TokenModel& model, const std::vector<sample::TokenPrompt>& prompts,
                  const DecodingPolicy& policy, bool block_causal, const std::string& select,
                  const sample::SpecialIds& special = {95, {92}}, bool own = false) {
  Rig rig(model, sample::sequence_lengths(prompts, policy, block_causal),
          nn::parse_selection(select));
  Outcome outcome;
  sample::DecodeControl control;
  control.before = [&](const std::vector<sample::SequencePass>& passes) {
    std::map<int, nn::Range> sequences;
    for (const auto& p : passes) {
      const bool keeps = p.pass.kind == PassKind::prefill || p.pass.kind == PassKind::finalise;
      if (own)
        sequences[p.sequence] = nn::kAllTokens;
      else if (!keeps)
        sequences[p.sequence] = p.pass.kind == PassKind::block ? p.pass.decide : nn::kAllTokens;
    }
    rig.setup.policy->restrict_to(sequences);
  };
  control.after = [&](const sample::SequencePass& p, const sample::BlockWalk&,
                      const tensor::Tensor& x) {
    const auto values = x.to_floats();
    if (p.sequence == 0)
      outcome.decided.insert(outcome.decided.end(), values.begin(), values.end());
    return true;
  };
  outcome.out = parallel::decode(model, prompts, policy, special, rig.setup, control);
  return outcome;
}

const std::vector<sample::TokenPrompt> kPrompts{
    {{13, 41, 45, 41, 75, 22, 79}, 16}, {{8}, 24}, {{50, 36, 11, 27, 49, 2, 3, 4, 5, 6, 7}, 9}};

TEST(LladaDecode, ABatchOfUnequalPromptsIsItsPromptsAloneBitByBit) {
  for (const bool causal : {false, true}) {
    const auto model = golden::LladaCase(causal ? "llada2" : "llada_moe").load("model", 8);
    for (const char* select : {"vanilla", "des-vote:0.25"})
      for (const double temperature : {0.0, 0.7}) {
        DecodingPolicy policy{.threshold = 0.6, .block = 8, .temperature = temperature, .seed = 3};
        policy.cache = parse_cache(causal ? "block" : "dual");
        const Outcome all = run_plain(*model, kPrompts, policy, causal, select);
        for (size_t i = 0; i < kPrompts.size(); ++i) {
          const Outcome one = run_plain(*model, {kPrompts[i]}, policy, causal, select);
          EXPECT_EQ(one.out[0].ids, all.out[i].ids);
          EXPECT_EQ(one.out[0].passes, all.out[i].passes);
          EXPECT_TRUE(i != 0 || one.decided == all.decided);
        }
      }
  }
}

TEST(LladaDecode, KeptBlocksAreFullRecomputationBitByBit) {
  const auto model = golden::LladaCase("llada2").load("model", 8);
  DecodingPolicy full{.steps = 8, .threshold = 0.7, .block = 8}, kept = full;
  kept.cache = {KvCache::block};
  const Outcome a = run_plain(*model, {kPrompts[0]}, full, true, "vanilla");
  const Outcome b = run_plain(*model, {kPrompts[0]}, kept, true, "vanilla");
  EXPECT_EQ(a.out[0].generated, b.out[0].generated);
  EXPECT_EQ(a.decided, b.decided);
}

TEST(LladaDecode, JoinedPassesAreFewerAndTheSameBitByBit) {
  for (const auto& [name, rule] : {std::pair{"llada2", "vanilla"},
                                   {"llada2", "des-vote:0.25"},
                                   {"llada2", "mc:0.3,0.1,0.2"},
                                   {"llada2", "block:4,8"},
                                   {"llada21_editing", "des-max:0.5"},
                                   {"llada22_block_routing", ""}}) {
    const golden::LladaCase golden(name);
    const auto spec = golden.spec();
    const auto model = golden.load("model", spec.block);
    DecodingPolicy apart{
        .steps = spec.block, .threshold = 0.6, .block = spec.block, .temperature = 0.5};
    apart.cache = {KvCache::block};
    if (std::string(name) == "llada21_editing") apart.rule = DecodingPolicy::Rule::edit;
    DecodingPolicy joined = apart;
    apart.as_published = true;
    const std::string select = *rule ? rule : nn::to_string(spec.routing);
    const std::vector<sample::TokenPrompt> prompts{
        {{13, 41, 45, 41, 75, 22, 7, 9, 12}, 4 * spec.block - 9}, {{8}, 2 * spec.block - 1}};
    const sample::SpecialIds special{*spec.mask, spec.ends};
    const Outcome a = run_plain(*model, prompts, apart, true, select, special, !*rule);
    const Outcome b = run_plain(*model, prompts, joined, true, select, special, !*rule);
    for (size_t i = 0; i < prompts.size(); ++i) EXPECT_EQ(a.out[i].ids, b.out[i].ids) << name;
    EXPECT_EQ(a.decided, b.decided) << name;
    EXPECT_LT(b.out[0].passes, a.out[0].passes) << name;
  }
}

TEST(LladaDecode, AWindowOverEverythingIsNoCacheBitByBit) {
  const auto model = golden::LladaCase("llada_moe").load();
  DecodingPolicy none{.threshold = 0.7, .block = 8}, window = none;
  window.cache = parse_cache("vicinity:1000,1000,0");  // refreshes the whole sequence in each pass
  const Outcome a = run_plain(*model, {kPrompts[1]}, none, false, "vanilla");
  const Outcome b = run_plain(*model, {kPrompts[1]}, window, false, "vanilla");
  EXPECT_EQ(a.out[0].ids, b.out[0].ids);
  EXPECT_EQ(a.decided, b.decided);
}

TEST(LladaDecode, AFullCoresetIsVanillaBitByBit) {
  for (const bool causal : {false, true}) {
    const auto model = golden::LladaCase(causal ? "llada2" : "llada_moe").load("model", 8);
    const DecodingPolicy policy{.threshold = 0.7, .block = 8};
    const Outcome vanilla = run_plain(*model, {kPrompts[0]}, policy, causal, "vanilla");
    for (const char* mode : {"A", "B", "D"}) {
      const std::string select = std::string("des-vote:1,weights=") + mode;
      EXPECT_EQ(run_plain(*model, {kPrompts[0]}, policy, causal, select).decided, vanilla.decided);
    }
  }
}

TEST(LladaDecode, TheMaskNeverComesOutAndEveryPassCommits) {
  const auto model = golden::LladaCase("llada_moe").load();
  for (const char* rule : {"steps:3", "threshold:2", "factor:0", "hierarchy:2,1.9", "credit:2"}) {
    DecodingPolicy policy{.block = 8, .temperature = 5, .seed = 9};
    sample::read_decode(rule, policy);
    const Outcome made = run_plain(*model, {{{1, 2, 3}, 20}}, policy, false, "vanilla");
    EXPECT_EQ(made.out[0].generated.size(), 20u) << rule;
    EXPECT_LE(made.out[0].passes, 20) << rule;
    for (int32_t id : made.out[0].ids) EXPECT_NE(id, 95);
  }
}

}  // namespace
}  // namespace tessera
