#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "load/scratch_folder.h"
#include "tessera/engine.h"
#include "whole/llada_golden.h"

namespace tessera {
namespace {

constexpr int32_t kRemove = 12, kSplit = 77, kMask = 79;  // words likely for this network

// The folder of block routing, with tokens for edits of length, named as in LLaDA2.2.
class EditsOfLength : public ::testing::Test {
 protected:
  EditsOfLength() {
    const std::string from = golden::LladaCase("llada22_block_routing").folder + "/model";
    std::ifstream file(from + "/config.json");
    base::Json config = base::Json::parse(file);
    config["delete_token_id"] = kRemove;
    config["split_token_id"] = kSplit;
    folder_.write("config.json", config.dump());
    std::filesystem::copy(from + "/model.safetensors", folder_.path("model.safetensors"));
  }
  Model open(const std::string& plan = "") const {
    auto options = golden::options(Precision::f32);
    if (!plan.empty()) options.plan = parse_plan(plan);
    return Model::open(folder_.path(), options);
  }
  static CompleteRequest request() {
    CompleteRequest q;
    q.prompt_ids = {{57, 28, 56, 70, 7, 9, 13, kRemove, 63, 5}};
    q.max_tokens = 30;
    q.stop_at_eos = StopAtEos::none;
    return q;
  }
  load::ScratchFolder folder_;
};

TEST_F(EditsOfLength, AreTheDefaultAndLeaveNoneOfTheirTokens) {
  Model model = open();
  const CompleteResult result = model.complete(request());
  EXPECT_EQ(result.decode, "edit:0.5,0");
  const auto& ids = result.completions[0].ids;
  ASSERT_EQ(ids.size(), 30u);
  for (const int32_t token : {kRemove, kSplit, kMask})
    EXPECT_EQ(std::count(ids.begin(), ids.end(), token), 0) << token;
  CompleteRequest plain = request();
  plain.decode = "threshold:0.9";
  std::string noted;
  const CompleteControl control{.on_note = [&](const std::string& note) { noted += note; }};
  const auto kept = model.complete(plain, control).completions[0].ids;
  EXPECT_GT(std::count(kept.begin(), kept.end(), kRemove), 0);
  EXPECT_NE(noted.find("tokens 12 and 77"), std::string::npos) << noted;
}

TEST_F(EditsOfLength, AreTheSameWithACacheInABatchAndOnRanks) {
  Model model = open(), ranks = open("expert=2");
  const CompleteResult want = model.complete(request());
  CompleteRequest q = request();
  q.cache = {KvCache::none};
  EXPECT_EQ(model.complete(q).completions[0].ids, want.completions[0].ids);
  q.cache = {};
  q.as_published = true;
  EXPECT_EQ(model.complete(q).completions[0].ids, want.completions[0].ids);
  q = request();
  q.prompt_ids.push_back({8});
  const auto batch = model.complete(q);
  EXPECT_EQ(batch.completions[0].ids, want.completions[0].ids);
  EXPECT_EQ(batch.completions[0].confidences, want.completions[0].confidences);
  EXPECT_EQ(ranks.complete(request()).completions[0].ids, want.completions[0].ids);
}

// Log probability and confidence move with their token: the word's likelihood is its confidence.
TEST_F(EditsOfLength, LogProbabilitiesAndConfidencesMoveWithTheirTokens) {
  Model model = open();
  CompleteRequest q = request();
  q.logprobs = 1;
  const Completion one = model.complete(q).completions[0];
  ASSERT_EQ(one.logprobs.size(), one.ids.size());
  for (size_t i = 0; i < one.ids.size(); ++i) {
    EXPECT_EQ(one.logprobs[i].token.id, one.ids[i]) << i;
    EXPECT_NEAR(std::exp(one.logprobs[i].token.logprob), one.confidences[i], 1e-9) << i;
  }
}

}  // namespace
}  // namespace tessera
