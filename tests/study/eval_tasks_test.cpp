#include "tessera/engine.h"
#include "tessera/study.h"
#include "whole/text_model.h"

namespace tessera {
namespace {

const char* const kPrompts[] = {"one", "and two", "three more", "4"};

RunOptions f32() { return golden::options(Precision::f32); }

// A folder with tasks that the model answers correctly, except the last.
std::string answered(const golden::TextModel& folder) {
  Model model = Model::open(folder.path(), f32());
  std::string lines;
  for (const char* prompt : kPrompts) {
    CompleteRequest q;
    q.prompts = {prompt};
    q.max_tokens = 16;
    const bool last = prompt == kPrompts[3];
    const std::string text = last ? "nothing of the kind" : model.complete(q).completions[0].text;
    lines +=
        base::Json{{"task", last ? "hard" : "easy"}, {"prompt", prompt}, {"answer", text}}.dump() +
        "\n";
  }
  folder.write("tasks.jsonl", lines);
  return folder.path();
}

std::vector<TaskQuality> lines_of(const std::string& model, const TaskRequest& request,
                                  std::vector<TaskQuality>* tuned = nullptr) {
  std::vector<TaskQuality> lines;
  const auto best =
      evaluate_tasks(model, f32(), request, [&](const auto& q) { lines.push_back(q); });
  if (tuned) *tuned = best;
  return lines;
}

TEST(EvalTasks, CountsRightAnswersExpertsAndPassesOfEachRule) {
  const golden::TextModel folder("llada2");
  TaskRequest request;
  request.max_tokens = 16;
  request.selects = {"des-vote:1", "des-vote:0.25"};
  const auto lines = lines_of(answered(folder), request);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0].select, "vanilla");
  EXPECT_EQ(lines[0].examples, 4);
  EXPECT_DOUBLE_EQ(lines[0].accuracy, 0.75);
  EXPECT_EQ(lines[0].tasks,
            (std::vector<std::pair<std::string, double>>{{"easy", 1}, {"hard", 0}}));
  EXPECT_EQ(lines[0].gained + lines[0].lost, 0);
  EXPECT_LT(lines[0].accuracy_low, 0.75);
  EXPECT_GT(lines[0].accuracy_high, 0.75);
  EXPECT_EQ(lines[2].lost - lines[2].gained, 3 - std::lround(4 * lines[2].accuracy));
  EXPECT_GT(lines[0].passes, 0);
  EXPECT_GT(lines[0].bytes, 0);
  EXPECT_DOUBLE_EQ(lines[1].accuracy, 0.75);  // a full coreset is vanilla
  EXPECT_DOUBLE_EQ(lines[1].experts, lines[0].experts);
  EXPECT_LE(lines[2].experts, 4);  // among 16
  EXPECT_LT(lines[2].experts_share, 1);
  const auto json = base::Json::parse(to_json(lines[2]));
  EXPECT_EQ(json.at("select"), "des-vote:0.25");
  EXPECT_EQ(json.at("tasks").size(), 2u);
}

TEST(EvalTasks, ABatchGivesWhatSinglesGive) {
  const golden::TextModel folder("llada_moe");
  const std::string path = answered(folder);
  TaskRequest request;
  request.max_tokens = 16;
  request.selects = {"des-vote:0.5"};
  const auto together = lines_of(path, request);
  request.batch = 1;
  const auto singles = lines_of(path, request);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(together[i].accuracy, singles[i].accuracy);
    EXPECT_EQ(together[i].experts, singles[i].experts);
    EXPECT_EQ(together[i].passes, singles[i].passes);
  }
}

TEST(EvalTasks, TuningFindsTheFewestExpertsThatLoseLittle) {
  const golden::TextModel folder("llada2");
  TaskRequest request;
  request.max_tokens = 16;
  request.selects = {"topk", "des-vote,weights=A"};
  request.tune = 1;  // all may be lost
  std::vector<TaskQuality> tuned;
  const auto lines = lines_of(answered(folder), request, &tuned);
  EXPECT_EQ(lines.size(), 1u + 3 + 8);  // top-4 of 16
  ASSERT_EQ(tuned.size(), 2u);
  EXPECT_EQ(tuned[0].select, "topk:1");
  EXPECT_EQ(tuned[1].select, "des-vote:0.125,weights=A");
  EXPECT_EQ(tuned[1].examples, 1);  // second easy example of three easy and a hard example
  request.selects = {"des-max:0.5", "topk:3", "des-max:0.25", "topk"};  // two sweeps, a rule
  EXPECT_EQ(lines_of(folder.path(), request, &tuned).size(), 1u + 2 + 3);
  ASSERT_EQ(tuned.size(), 2u);
  EXPECT_EQ(tuned[0].select, "des-max:0.25");
  EXPECT_EQ(tuned[1].select, "topk:1");
}

// In a bidirectional model the refresh passes decide most tokens.
TEST(EvalTasks, EveryPassThatCommitsTokensIsUnderTheRule) {
  const golden::TextModel folder("llada_moe");
  const std::string path = answered(folder);
  TaskRequest request;
  request.max_tokens = 16;
  request.complete.stop_at_eos = StopAtEos::none;
  request.complete.block = 8;
  request.selects = {"des-vote:0.25"};
  const auto lines = lines_of(path, request);
  EXPECT_EQ(lines[1].ruled, 1);
  EXPECT_LE(lines[1].experts, 4);  // among 16
  EXPECT_LE(lines[1].batch_experts, 16);
  EXPECT_GE(lines[1].batch_experts, lines[1].experts);
  request.complete.select_refresh = false;
  const auto before = lines_of(path, request);
  EXPECT_LT(before[1].ruled, 1);
  EXPECT_EQ(base::Json::parse(to_json(before[1])).at("ruled"), before[1].ruled);
}

TEST(EvalTasks, OneCoresetOfABatchReadsFewerExpertsThanOneOfEachSequence) {
  const golden::TextModel folder("llada_moe");
  const std::string path = answered(folder);
  TaskRequest request;
  request.max_tokens = 16;
  request.selects = {"des-vote:0.25", "des-vote:0.25,scope=batch"};
  const auto lines = lines_of(path, request);
  EXPECT_LE(lines[2].batch_experts, 4);
  EXPECT_GT(lines[1].batch_experts, lines[2].batch_experts);
  EXPECT_GT(lines[1].bytes, lines[2].bytes);
}

TEST(EvalTasks, NumbersMayBeComparedAlone) {
  const golden::TextModel folder("llada_moe");
  folder.write("one.jsonl", "{\"prompt\": \"x\", \"answer\": \"no number\"}");
  TaskRequest request;
  request.data.name = folder.path("one.jsonl");
  request.number = true;
  EXPECT_EQ(lines_of(folder.path(), request)[0].accuracy, 0);
}

TEST(EvalTasks, WhatDoesNotFitIsNamedBeforeTheWork) {
  const golden::TextModel folder("llada_moe");
  const std::string path = answered(folder);
  const auto refused = [&](auto change) {
    TaskRequest request;
    change(request);
    return golden::error_of([&] { lines_of(path, request); });
  };
  const auto has = [](const std::string& message, const char* part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  has(refused([](auto& r) { r.selects = {"des-best:2"}; }), "des-best");
  has(refused([](auto& r) { r.selects = {"topk:17"}; }), "the model has 16");
  has(refused([](auto& r) { r.data.name = "none.jsonl"; }), "none.jsonl");
  has(refused([](auto& r) {
        r.tune = 0.1;
        r.limit = 1;
      }),
      "no two halves");
  has(golden::error_of([] { lines_of("shapes", {}); }), "no language model");
}

}  // namespace
}  // namespace tessera
