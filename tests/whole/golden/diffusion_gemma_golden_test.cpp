#include <set>

#include "nn/moe/sequence_usage.h"
#include "parallel/decode.h"
#include "runtime/language.h"
#include "whole/llada_golden.h"

// DiffusionGemma against transformers: forward passes, and every sampling run decision by decision.
namespace tessera {
namespace {

using base::Json;
using sample::DecodingPolicy;

/// The strategies of a single rank.
struct Rig {
  Rig(const nn::TokenModel& model, std::vector<int64_t> lengths, const nn::SelectionRule& rule)
      : setup({}, model.geometry(), {.text = {{std::move(lengths), rule}}}) {
    setup.experts->log().watch([this](const nn::MoeWork& work) { usage.see(work); });
  }
  parallel::Setup setup;
  nn::SequenceUsage usage;
};

sample::TokenPass text_pass(const std::vector<int32_t>& ids, nn::Range range) {
  sample::TokenPass pass{.ids = {ids.begin() + range.begin, ids.begin() + range.end}};
  pass.view.sequences = {0};
  pass.view.body = {{0, range}};
  pass.view.lengths = {range.end};
  return pass;
}

sample::TokenPass canvas_pass(const std::vector<int32_t>& ids, int64_t begin, int index) {
  sample::TokenPass pass = text_pass(ids, {0, std::ssize(ids)});
  pass.index = index;
  pass.view.body = pass.decide = {{0, {begin, begin + std::ssize(ids)}}};
  pass.view.lengths = {begin + std::ssize(ids)};
  pass.view.canvas = {begin};
  return pass;
}

class HiddenCheck {
 public:
  HiddenCheck(const golden::LladaCase& golden, const std::string& name) {
    if (golden.io.has(name)) expected_ = golden.io.get(name);
  }
  void operator()(int blocks, const nn::Tensor& stream) const {
    if (!expected_.defined()) return;
    EXPECT_LT(golden::max_error(stream.to_floats(), golden::row(expected_, blocks)), 1e-4)
        << "after " << blocks << " layers";
  }

 private:
  nn::Tensor expected_;
};

void check_forward(const golden::LladaCase& golden, const Json& run, const nn::TokenModel& model) {
  const auto prefix = run.at("prefix").get<std::string>();
  SCOPED_TRACE(prefix);
  const auto ids = golden.ids(prefix + "input_ids"), canvas = golden.ids(prefix + "canvas_ids");
  const int64_t text = std::ssize(ids), end = text + std::ssize(canvas);
  Rig rig(model, {end}, {});
  const int64_t first = run.value("encoded_in_two", int64_t{0});
  int index = 0;
  if (first > 0) parallel::forward(model, text_pass(ids, {0, first}), rig.setup, {});
  if (first > 0) ++index;
  auto rest = text_pass(ids, {first, text});
  rest.index = index++;
  parallel::forward(model, rest, rig.setup, HiddenCheck(golden, prefix + "encoder.hidden"));
  for (size_t layer = 0; layer < model.geometry().attention.size(); ++layer) {
    const auto name = fmt::format("{}cache.{}.", prefix, layer);
    if (!golden.io.has(name + "keys")) continue;
    // [heads, kept, channels] of the last tokens, read by the decoder.
    const auto keys = golden.io.get(name + "keys"), values = golden.io.get(name + "values");
    const int64_t kept = keys.size(1);
    const auto [k, v] =
        rig.setup.cache->slots().read(static_cast<int>(layer), 0, {text - kept, text});
    const auto by_head = [&](const nn::Tensor& rows) {
      std::vector<float> all;
      for (int64_t h = 0; h < keys.size(0); ++h) {
        const auto part =
            rows.slice(1, h * keys.size(2), (h + 1) * keys.size(2)).contiguous().to_floats();
        all.insert(all.end(), part.begin(), part.end());
      }
      return all;
    };
    EXPECT_LT(golden::max_error(by_head(k), keys.to_floats()), 1e-4) << name;
    EXPECT_LT(golden::max_error(by_head(v), values.to_floats()), 1e-4) << name;
  }
  auto pass = canvas_pass(canvas, text, index);
  if (run.at("self_conditioning").get<bool>())
    pass.earlier = {pass.view.body, golden.io.get(prefix + "self_conditioning_logits")};
  const auto logits =
      parallel::forward(model, pass, rig.setup, HiddenCheck(golden, prefix + "decoder.hidden"));
  EXPECT_LT(golden::max_error(logits.to_floats(), golden.io.get(prefix + "logits").to_floats()),
            1e-4);
}

DecodingPolicy policy_of(const golden::LladaCase& golden, const Json& run) {
  const Json& settings = run.at("generation_config");
  DecodingPolicy p;
  p.rule = DecodingPolicy::Rule::canvas;
  p.cache.kind = KvCache::block;
  p.stop = StopAtEos::block;
  p.as_published = true;
  p.block = golden.json.at("canvas_length").get<int>();
  sample::CanvasRule& c = p.canvas;
  c.max_denoising_steps = settings.at("max_denoising_steps").get<int>();
  c.entropy_bound = settings.at("sampler_config").at("entropy_bound").get<double>();
  c.t_max = settings.at("t_max").get<double>();
  c.t_min = settings.at("t_min").get<double>();
  c.stability_threshold = settings.at("stability_threshold").get<int>();
  c.confidence_threshold = settings.at("confidence_threshold").get<double>();
  c.vocabulary = static_cast<int32_t>(golden.spec().vocabulary);
  auto draws = std::make_shared<sample::CanvasDraws>();
  const std::string name = "run." + run.at("name").get<std::string>() + ".";
  draws->init = golden.io.get(name + "init");
  draws->noise = golden.io.get(name + "noise");
  if (run.value("draw", "") != "argmax") draws->uniform = golden.io.get(name + "uniform");
  c.draws = draws;
  return p;
}

nn::SelectionRule selection_of(const Json& run) {
  if (!run.contains("select")) return {};
  const Json& select = run.at("select");
  nn::SelectionRule rule;
  const std::string method = select.at("method").get<std::string>();
  rule.method = method == "seq" ? nn::SelectionRule::Method::seq : nn::SelectionRule::Method::vote;
  rule.k = select.value("k", 0);
  rule.beta = select.value("beta", 1.0);
  rule.open = select.at("scope") == "open";
  rule.weights =
      select.at("weights") == "A" ? nn::SelectionRule::Weights::a : nn::SelectionRule::Weights::b;
  return rule;
}

// Accepted positions of each pass, and the canvases after the passes.
void check_canvases(const golden::LladaCase& golden, const std::string& name,
                    const std::vector<uint8_t>& accepted, const std::vector<int32_t>& next,
                    int64_t tokens) {
  const auto flags = golden.io.get("run." + name + ".accepted");
  EXPECT_EQ(accepted,
            std::vector<uint8_t>(flags.data<uint8_t>(), flags.data<uint8_t>() + flags.elements()));
  // After the last pass of a canvas, the likeliest tokens remain, not the case's next tokens.
  const auto canvases = golden.ids("run." + name + ".next");
  const auto numbers = golden.ids("run." + name + ".canvas_number");
  ASSERT_EQ(next.size(), canvases.size());
  for (size_t row = 0; row + 1 < numbers.size(); ++row) {
    if (numbers[row] != numbers[row + 1]) continue;
    const auto at = static_cast<int64_t>(row) * tokens;
    EXPECT_TRUE(std::equal(next.begin() + at, next.begin() + at + tokens, canvases.begin() + at))
        << "after pass " << row;
  }
}

void check_run(const golden::LladaCase& golden, const Json& run, const nn::TokenModel& model) {
  const auto name = run.at("name").get<std::string>();
  SCOPED_TRACE(name);
  const auto spec = golden.spec();
  const DecodingPolicy policy = policy_of(golden, run);
  sample::SpecialIds special{-1, {}};
  const Json& settings = run.at("generation_config");
  if (settings.contains("eos_token_id"))
    special.ends = settings.at("eos_token_id").get<std::vector<int32_t>>();
  const std::vector<sample::TokenPrompt> prompts{
      {run.at("prompt").get<std::vector<int32_t>>(), settings.at("max_new_tokens").get<int64_t>()}};
  const nn::SelectionRule rule = selection_of(run);
  Rig rig(model, sample::sequence_lengths(prompts, policy, true), rule);
  Json forwards = Json::array();
  std::vector<uint8_t> accepted;
  std::vector<int32_t> next;
  sample::DecodeControl control;
  control.before = [&](const std::vector<sample::SequencePass>& passes) {
    std::map<int, std::vector<nn::Range>> ruled;
    for (const auto& p : passes)
      if (p.canvas) ruled[p.sequence] = rule.open ? p.undecided : std::vector{p.pass.decide};
    rig.setup.policy->restrict_to(ruled);
  };
  control.after = [&](const sample::SequencePass& p, const sample::BlockWalk&, const nn::Tensor&) {
    Json experts = Json::array();
    for (const auto& use : rig.usage.take()) experts.push_back(use.distinct);
    Json one{{"kind", word_of(p.pass.kind)},
             {"from", p.pass.ids.begin},
             {"to", p.pass.ids.end},
             {"unique_experts", experts}};
    if (p.canvas) {
      one["accepted"] = std::ranges::count(p.commits, true, &sample::Prediction::accepted);
      for (const auto& c : p.commits) {
        accepted.push_back(c.accepted ? 1 : 0);
        next.push_back(c.token);
      }
    }
    forwards.push_back(one);
    return true;
  };
  const auto out = parallel::decode(model, prompts, policy, special, rig.setup, control);
  auto expected = run.at("tokens").get<std::vector<int32_t>>();
  if (out[0].ended) expected.resize(out[0].generated.size());  // tokens after an end are padding
  EXPECT_EQ(out[0].generated, expected);
  Json counted = run.at("forwards");
  for (Json& one : counted)
    for (const char* key : {"in_scope", "unique_experts_in_scope"}) one.erase(key);
  EXPECT_EQ(forwards, counted);
  EXPECT_EQ(out[0].passes, run.at("nfe").at("total").get<int64_t>());
  check_canvases(golden, name, accepted, next, policy.block);
}

void check_case(const golden::LladaCase& golden, size_t forwards, size_t runs) {
  const auto model = golden.load();
  EXPECT_EQ(golden.json.at("forward").size(), forwards);
  for (const Json& run : golden.json.at("forward")) check_forward(golden, run, *model);
  EXPECT_EQ(golden.json.at("runs").size(), runs);
  for (const Json& run : golden.json.at("runs")) check_run(golden, run, *model);
}

void check_small_case(const std::string& name, size_t forwards, size_t runs) {
  check_case(golden::LladaCase("diffusion_gemma_" + name), forwards, runs);
}

// Cases too large for the repository may be placed beside the test data.
void check_case_beside(const std::string& name, size_t forwards, size_t runs) {
  const std::string root = std::string(TESSERA_TEST_DATA) + "/../../../shared/golden/moe/";
  if (!std::filesystem::exists(root + "diffusion_gemma_" + name))
    GTEST_SKIP() << "there is no folder of further golden cases beside the tree";
  check_case(golden::LladaCase(root, "diffusion_gemma_" + name), forwards, runs);
}

TEST(DiffusionGemmaGolden, ChatsBecomeTheReferencesIds) {
  const std::string folder = std::string(TESSERA_TEST_DATA) + "/moe/diffusion_gemma_text";
  const Json cases = base::read_json(folder + "/case.json").at("chat");
  const runtime::Language language(load::open_folder(folder + "/model").component("model"));
  EXPECT_EQ(cases.size(), 5u);
  for (const Json& chat : cases) {
    Json asked{{"messages", chat.at("messages")}};
    if (chat.contains("enable_thinking")) asked["enable_thinking"] = chat.at("enable_thinking");
    EXPECT_EQ(language.chat(asked.dump()), chat.at("ids").get<std::vector<int32_t>>())
        << asked.dump();
  }
}

TEST(DiffusionGemmaGolden, RanksGiveTheAnswerOfOne) {
  std::vector<int32_t> expected;
  for (const char* plan : {"", "expert=2", "expert=3", "expert=2,moe=fused"}) {
    RunOptions options = golden::options(Precision::f32);
    options.plan = parse_plan(plan);
    const Model model = Model::open(
        std::string(TESSERA_TEST_DATA) + "/moe/diffusion_gemma_canvas256/model", options);
    CompleteRequest request;
    request.prompt_ids = {{5, 17, 99}, {8, 8, 31, 200, 4}};
    request.block = 16;
    request.max_tokens = 20;
    request.seed = 5;
    const CompleteResult made = model.complete(request);
    ASSERT_EQ(made.completions.size(), 2u);
    std::vector<int32_t> ids = made.completions[0].ids;
    ids.insert(ids.end(), made.completions[1].ids.begin(), made.completions[1].ids.end());
    if (expected.empty()) expected = ids;
    EXPECT_EQ(ids, expected) << plan;
  }
}

TEST(DiffusionGemmaGolden, Untied) { check_small_case("untied", 2, 1); }
TEST(DiffusionGemmaGolden, CanvasOf256UnderRules) { check_small_case("canvas256", 1, 2); }
TEST(DiffusionGemmaGolden, PublishedLayout) { check_case_beside("plain", 3, 8); }
TEST(DiffusionGemmaGolden, OtherRatios) { check_case_beside("ratios", 3, 3); }
TEST(DiffusionGemmaGolden, AllRulesOverACanvasOf256) { check_case_beside("canvas256", 1, 6); }

}  // namespace
}  // namespace tessera
