#include "completion/recorder.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tessera/engine.h"
#include "tokenizer/byte_level_bpe.h"
#include "whole/llada_golden.h"
#include "whole/text_model.h"

namespace tessera {
namespace {

Model open(const std::string& path, const std::string& plan = "") {
  RunOptions options = golden::options(Precision::f32);
  options.plan = parse_plan(plan);
  return Model::open(path, options);
}

TEST(Recorder, StreamsWhatIsFinalAndEndsAtStopTexts) {
  const golden::TextModel folder("llada_moe");
  Model model = open(folder.path());
  CompleteRequest q;
  q.prompts = {"Hello"};
  q.raw = true;
  q.max_tokens = 24;
  q.block = 8;
  q.stop_at_eos = StopAtEos::none;
  std::string streamed;
  bool ended = false;
  CompleteControl control;
  control.on_progress = [&](const CompleteProgress& p) {
    streamed += p.text;
    ended = p.ended;
    EXPECT_TRUE(p.ended || p.block.size() == 8);
  };
  const Completion whole = model.complete(q, control).completions[0];
  EXPECT_EQ(whole.text.size(), 24u);
  EXPECT_EQ(streamed, whole.text);
  EXPECT_TRUE(ended);
  q.stop = {whole.text.substr(9, 3), "never there at all"};
  streamed.clear();
  const Completion cut = model.complete(q, control).completions[0];
  EXPECT_EQ(cut.text, whole.text.substr(0, whole.text.find(q.stop[0])));
  EXPECT_EQ(streamed, cut.text);
  EXPECT_EQ(cut.finish, FinishReason::stop);
  EXPECT_LT(cut.passes.size(), whole.passes.size());
}

TEST(Recorder, AStreamNeverSplitsACharacter) {
  const golden::TextModel folder("llada_moe");
  base::Json vocab;  // pieces of two-byte characters: C3 and A9 in every order
  std::vector<std::string> pieces{""};
  for (size_t i = 0; vocab.size() < 92; ++i) {
    for (const char* half : {"\u00c3", "\u00a9"}) {
      pieces.push_back(pieces[i] + half);
      if (vocab.size() < 92) vocab[pieces.back()] = vocab.size();
    }
  }
  base::Json file = base::read_json(folder.path("tokenizer.json"));
  file["model"]["vocab"] = vocab;
  folder.write("tokenizer.json", file.dump());
  Model model = open(folder.path());
  for (int32_t first : {1, 20, 55}) {
    CompleteRequest q;
    q.prompt_ids = {{first, 7}};
    q.max_tokens = 32;
    q.block = 8;
    q.stop_at_eos = StopAtEos::none;
    std::string streamed;
    CompleteControl control;
    control.on_progress = [&](const CompleteProgress& p) {
      EXPECT_EQ(tokenizer::whole_characters(p.text), p.text.size());
      streamed += p.text;
    };
    const Completion made = model.complete(q, control).completions[0];
    EXPECT_FALSE(made.text.empty());
    EXPECT_EQ(streamed, made.text);
    EXPECT_NO_THROW(base::Json(made.text).dump());  // UTF-8
  }
}

TEST(Recorder, ConfidencesAreThoseOfTheThreshold) {
  Model model = open(golden::LladaCase("llada2").folder + "/model");
  CompleteRequest q;
  q.prompt_ids = {{1, 2, 3}};
  q.max_tokens = 13;
  q.block = 8;
  q.decode = "steps:1";  // a pass fills the block: commits are the arg max of the pass
  q.stop_at_eos = StopAtEos::none;
  const Completion all = model.complete(q).completions[0];
  ASSERT_EQ(all.confidences.size(), 13u);
  q.decode = "steps:8";  // single commits, the surest first: no first commit is less sure
  const Completion slow = model.complete(q).completions[0];
  const double first = *std::max_element(all.confidences.begin(), all.confidences.begin() + 5);
  const double best = *std::max_element(slow.confidences.begin(), slow.confidences.begin() + 5);
  EXPECT_GE(best, first - 1e-6);
}

TEST(Recorder, LogProbabilitiesAreTheModels) {
  Model model = open(golden::LladaCase("llada2").folder + "/model");
  CompleteRequest q;
  q.prompt_ids = {{1, 2, 3}};
  q.max_tokens = 8;
  q.stop_at_eos = StopAtEos::none;
  EXPECT_TRUE(model.complete(q).completions.at(0).logprobs.empty());
  q.logprobs = 3;
  const Completion greedy = model.complete(q).completions.at(0);
  ASSERT_EQ(greedy.logprobs.size(), greedy.ids.size());
  for (size_t i = 0; i < greedy.ids.size(); ++i) {
    const auto& said = greedy.logprobs[i];
    EXPECT_EQ(said.token.id, greedy.ids[i]);
    EXPECT_NEAR(said.token.logprob, std::log(greedy.confidences[i]), 1e-9);
    ASSERT_EQ(said.top.size(), 3u);
    EXPECT_EQ(said.top[0].id, greedy.ids[i]);  // the likeliest
    EXPECT_GE(said.top[0].logprob, said.top[1].logprob);
    EXPECT_GE(said.top[1].logprob, said.top[2].logprob);
  }
}

TEST(Recorder, EditedBlocksAreStreamedWhenTheySettle) {
  Model model = open(golden::LladaCase("llada21_editing").folder + "/model");
  CompleteRequest q;
  q.prompt_ids = {{68, 66, 58, 31, 42, 43, 36, 32, 63}};
  q.max_tokens = 20;
  q.decode = "edit:0.65,0.45,12";
  q.stop_at_eos = StopAtEos::none;
  const CompleteResult made = model.complete(q);
  EXPECT_EQ(made.decode, q.decode);
  EXPECT_EQ(made.completions[0].ids,
            (std::vector<int32_t>{69, 40, 8,  76, 75, 35, 13, 35, 45, 3,
                                  32, 51, 28, 71, 47, 39, 63, 51, 71, 32}));
  EXPECT_EQ(made.completions[0].passes.size(), 58u);
}

}  // namespace
}  // namespace tessera
