#include "tessera/engine.h"
#include "whole/llada_golden.h"

namespace tessera {
namespace {

Model open(const std::string& path) { return Model::open(path, golden::options(Precision::f32)); }

CompleteRequest request_of(const base::Json& run, int block) {
  CompleteRequest q;
  q.prompt_ids = {run.at("prompt").get<std::vector<int32_t>>()};
  q.max_tokens = 32;
  q.block = block;
  q.cache = {KvCache::none};
  q.stop_at_eos = StopAtEos::none;
  return q;
}

const base::Json& run_named(const golden::LladaCase& golden, const std::string& name) {
  for (const auto& run : golden.json.at("runs"))
    if (run.at("name") == name) return run;
  throw Error(ErrorCode::usage, "no run " + name);
}

TEST(Complete, GivesTheGoldenTokensThroughThePublicFace) {
  const golden::LladaCase moe("llada_moe"), two("llada2");
  {
    Model model = open(moe.folder + "/model");
    CompleteRequest q = request_of(run_named(moe, "dual_threshold"), 8);
    q.decode = "threshold:0.8";
    q.cache = {};
    const CompleteResult result = model.complete(q);
    const auto whole = moe.ids("dual_threshold.tokens");
    EXPECT_EQ(result.completions[0].ids, std::vector<int32_t>(whole.begin() + 13, whole.end()));
    EXPECT_EQ(result.forwards, 15);
    EXPECT_EQ(result.completions[0].finish, FinishReason::length);
    EXPECT_GT(result.bytes_read, 0);
  }
  Model model = open(two.folder + "/model");
  CompleteRequest q = request_of(run_named(two, "eos_early_cached"), 8);
  q.decode = "threshold:0.8";
  q.cache = {};
  q.stop_at_eos = StopAtEos::early;
  EXPECT_EQ(model.complete(q).forwards, 7) << "a prefill and two finalises are none of their own";
  q.as_published = true;
  const CompleteResult result = model.complete(q);
  EXPECT_EQ(result.completions[0].ids, two.ids("eos_early_cached.tokens"));
  EXPECT_EQ(result.completions[0].finish, FinishReason::end);
  EXPECT_EQ(result.forwards, 10);
}

TEST(Complete, JsonHoldsIdsUsageAndExperts) {
  Model model = open(golden::LladaCase("llada_moe").folder + "/model");
  CompleteRequest q;
  q.prompt_ids = {{1, 2, 3}};
  q.max_tokens = 8;
  const base::Json json = base::Json::parse(to_json(model.complete(q)));
  const base::Json& one = json.at("completions").at(0);
  EXPECT_EQ(one.at("ids").size(), one.at("usage").at("completion_tokens").get<size_t>());
  EXPECT_EQ(one.at("usage").at("prompt_tokens"), 3);
  EXPECT_EQ(one.at("prompt_ids"), (base::Json{1, 2, 3}));
  ASSERT_EQ(one.at("confidences").size(), one.at("ids").size());
  for (const auto& sure : one.at("confidences")) {
    EXPECT_GT(sure.get<double>(), 0);
    EXPECT_LE(sure.get<double>(), 1);
  }
  EXPECT_EQ(json.at("pass_seconds").size(), json.at("forwards").get<size_t>());
  EXPECT_EQ(one.at("forwards"), one.at("passes").size());
  EXPECT_EQ(one.at("passes").at(0).at("experts").size(), 3u);
  EXPECT_GT(json.at("experts_read").get<int>(), 0);
}

TEST(Complete, InspectDescribesALanguageModel) {
  const auto found = open(golden::LladaCase("llada2").folder + "/model").inspect();
  ASSERT_EQ(found.components.size(), 1u);
  EXPECT_EQ(found.components[0].facts.at("num_experts"), "16");
}

}  // namespace
}  // namespace tessera
