#include "completion/streamed_experts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "admission/token_memory.h"
#include "base/fail.h"
#include "cluster/on_processes.h"
#include "runtime/open_model.h"
#include "tessera/engine.h"
#include "test_paths.h"
#include "whole/golden.h"
#include "whole/text_model.h"

namespace tessera {
namespace {

std::string shipped(const std::string& name) { return std::string(TESSERA_MODELS_DIR "/") + name; }

RunOptions with_budget(int64_t bytes, const std::string& plan = "") {
  RunOptions options = golden::options(Precision::bf16);
  options.memory_budget = bytes;
  options.plan = parse_plan(plan);
  return options;
}

CompleteRequest question(const std::string& select = "vanilla") {
  CompleteRequest q;
  q.prompts = {"sort hello=", "add 27+35="};
  q.max_tokens = 40;
  q.select = select;
  return q;
}

// The memory of a model's run with all experts, the number of experts, and the bytes of an expert.
struct Sizes {
  explicit Sizes(const std::string& path, const CompleteRequest& q = question()) {
    runtime::ModelState state;
    runtime::open_model(path, golden::options(Precision::bf16), state);
    all = completion::resident_experts(state, INT64_MAX, 0);
    layer = state.language->geometry(state.dtype()).experts.front().experts;
    one = completion::expert_bytes(state);
    answer = Model::open(path, golden::options(Precision::bf16)).complete(q);
  }
  // A budget for about `experts` experts.
  int64_t budget(int64_t experts) const {
    return answer.peak_bytes.total - (all - experts) * one.packed;
  }
  int64_t all = 0, layer = 0;
  completion::ExpertBytes one;
  CompleteResult answer;
};

void expect_same(const CompleteResult& a, const CompleteResult& b) {
  ASSERT_EQ(a.completions.size(), b.completions.size());
  for (size_t i = 0; i < a.completions.size(); ++i) {
    const Completion &x = a.completions[i], &y = b.completions[i];
    EXPECT_EQ(x.ids, y.ids);
    EXPECT_EQ(x.confidences, y.confidences) << "bit by bit";
    EXPECT_EQ(x.text, y.text);
    ASSERT_EQ(x.passes.size(), y.passes.size());
    for (size_t p = 0; p < x.passes.size(); ++p) {
      EXPECT_EQ(x.passes[p].kind, y.passes[p].kind);
      EXPECT_EQ(x.passes[p].committed, y.passes[p].committed);
      EXPECT_EQ(x.passes[p].experts, y.passes[p].experts);
    }
  }
  EXPECT_EQ(a.forwards, b.forwards);
  EXPECT_EQ(a.experts_read, b.experts_read);
}

// The code and the message of the error of a request; "": no error.
std::pair<ErrorCode, std::string> failure(const RunOptions& options, const std::string& path,
                                          const CompleteRequest& q = question()) {
  try {
    Model::open(path, options).complete(q);
  } catch (const Error& e) {
    return {e.code(), e.what()};
  }
  return {ErrorCode::usage, ""};
}

// The budget in the text of a refusal.
int64_t named_budget(const std::string& said) {
  const std::string before = "it fits into `memory_budget` ";
  const size_t at = said.find(before);
  EXPECT_NE(at, std::string::npos) << said;
  return at == std::string::npos ? 0
                                 : std::llround(std::stod(said.substr(at + before.size())) * 1e6);
}

// Both families, in each form of experts.
std::vector<std::string> forms(const std::string& name, const golden::Scratch& scratch) {
  std::vector<std::string> folders{shipped(name)};
  for (const Precision experts : {Precision::int8, Precision::int4}) {
    folders.push_back(scratch / std::to_string(folders.size()));
    Model::open(shipped(name), golden::options(Precision::bf16))
        .quantise({folders.back(), experts});
  }
  return folders;
}

TEST(StreamedExperts, AnswersAreThoseOfAllInMemoryBitByBit) {
  for (const char* name : {"tasks-a", "tasks-b"}) {
    const golden::Scratch scratch;
    for (const std::string& folder : forms(name, scratch))
      for (const char* select : {"vanilla", "des-max:0.25"}) {
        SCOPED_TRACE(folder + " " + select);
        const CompleteRequest q = question(select);
        const Sizes sizes(folder, q);
        ASSERT_FALSE(sizes.answer.streamed);
        int64_t before = 0;
        const int64_t least = named_budget(failure(with_budget(1000), folder, q).second);
        for (const int64_t more : {sizes.all - sizes.layer - 40, sizes.layer / 2, int64_t{0}}) {
          const int64_t budget = least + more * sizes.one.packed;
          const CompleteResult made = Model::open(folder, with_budget(budget)).complete(q);
          expect_same(made, sizes.answer);
          EXPECT_LE(made.peak_bytes.total, budget);
          ASSERT_TRUE(made.streamed);
          EXPECT_EQ(made.streamed->all, sizes.all);
          EXPECT_GE(made.streamed->resident, sizes.layer);
          EXPECT_LT(made.streamed->resident, sizes.all);
          EXPECT_EQ(made.streamed->hits + made.streamed->misses, made.experts_read);
          EXPECT_EQ(made.streamed->bytes, made.streamed->misses * sizes.one.stored);
          EXPECT_GE(made.streamed->misses, before) << "fewer stay, more are read";
          before = made.streamed->misses;
        }
        EXPECT_GT(before, sizes.layer);
      }
  }
}

// Each rank reads some of its own experts; together the answers equal a single rank's.
void expect_shared(const CompleteResult& made, const Sizes& sizes, size_t ranks) {
  ASSERT_TRUE(made.streamed);
  ASSERT_EQ(made.per_rank.size(), ranks);
  std::optional<StreamedExperts> sum;
  for (const Report::Rank& rank : made.per_rank) {
    ASSERT_TRUE(rank.streamed);
    EXPECT_LE(rank.streamed->resident, rank.streamed->all);
    EXPECT_GT(rank.streamed->misses, 0);
    EXPECT_EQ(rank.streamed->bytes, rank.streamed->misses * sizes.one.stored);
    completion::add_streamed(*rank.streamed, sum);
  }
  EXPECT_EQ(made.streamed->all, sizes.all);
  EXPECT_EQ(sum->all, sizes.all);
  EXPECT_EQ(made.streamed->resident, sum->resident);
  EXPECT_EQ(made.streamed->bytes, sum->bytes);
  EXPECT_EQ(made.streamed->hits + made.streamed->misses, made.experts_read);
}

TEST(StreamedExperts, RanksThatShareExpertsReadTheirOwn) {
  for (const char* name : {"tasks-a", "tasks-b"})
    for (const auto& [plan, ranks] : std::map<std::string, size_t>{
             {"expert=2", 2}, {"expert=3", 3}, {"expert=2,placement=strided", 2}})
      for (const char* select : {"vanilla", "des-max:0.25"}) {
        SCOPED_TRACE(name + (" " + plan) + " " + select);
        const std::string path = shipped(name);
        const CompleteRequest q = question(select);
        const Sizes sizes(path, q);
        const auto [code, said] = failure(with_budget(1000, plan), path, q);
        EXPECT_EQ(code, ErrorCode::memory);
        EXPECT_NE(said.find("experts that a pass may ask of a layer"), std::string::npos) << said;
        const int64_t least = named_budget(said);
        int64_t before = INT64_MAX;
        for (const int64_t more : {0, 6}) {
          const int64_t budget = least + more * sizes.one.packed;
          const CompleteResult made = Model::open(path, with_budget(budget, plan)).complete(q);
          expect_same(made, sizes.answer);
          expect_shared(made, sizes, ranks);
          EXPECT_LE(made.peak_bytes.total, budget);
          EXPECT_LT(made.streamed->resident, sizes.all);
          EXPECT_LE(made.streamed->misses, before) << "more stay, fewer are read";
          before = made.streamed->misses;
        }
      }
}

// Each process has its own budget and keeps within the limit.
TEST(StreamedExperts, RanksThatAreProcessesReadTheirOwn) {
  for (const char* name : {"tasks-a", "tasks-b"})
    for (const int ranks : {2, 3}) {
      const std::string path = shipped(name), plan = fmt::format("expert={}", ranks);
      SCOPED_TRACE(name + (" " + plan));
      const Sizes sizes(path);
      std::mutex mutex;
      const auto run = [&](int64_t budget) {
        CompleteResult first;
        std::string refused;
        on_processes(ranks, [&](const Processes& of) {
          RunOptions options = with_budget(budget, plan);
          options.processes = &of;
          options.threads = 1;
          try {
            CompleteResult made = Model::open(path, options).complete(question());
            if (of.rank() == 0) first = std::move(made);
          } catch (const Error& e) {
            if (e.code() != ErrorCode::memory) throw;
            const std::lock_guard lock(mutex);
            refused = e.what();
          }
        });
        return std::pair{std::move(first), refused};
      };
      const int64_t least = named_budget(run(1000).second);
      for (const int64_t more : {0, 6}) {
        const int64_t budget = least + more * sizes.one.packed;
        const auto [made, refused] = run(budget);
        ASSERT_EQ(refused, "");
        expect_same(made, sizes.answer);
        expect_shared(made, sizes, static_cast<size_t>(ranks));
        for (const Report::Rank& rank : made.per_rank) {
          EXPECT_LE(rank.peak_bytes.total, budget);
          EXPECT_LT(rank.streamed->resident, rank.streamed->all);
        }
      }
    }
}

TEST(StreamedExperts, ARunThatIsPredictedIsHeld) {
  const std::string path = shipped("tasks-b");
  const Sizes sizes(path);
  for (int64_t experts = sizes.layer + 20; experts < sizes.all; experts += 40) {
    const RunOptions options = with_budget(sizes.budget(experts));
    runtime::ModelState state;
    runtime::open_model(path, options, state);
    completion::TokenRun run{{64, 64}, 32, 32, {0, 0}, true};
    const admission::TokenFit fit = admission::fit_tokens(state, run);
    ASSERT_EQ(fit.problem, "");
    EXPECT_NE(fit.note.find("experts while it runs"), std::string::npos) << fit.note;
    EXPECT_GE(run.experts, sizes.layer);
    EXPECT_LE(fit.need.process, options.memory_budget);
    EXPECT_GT(fit.need.process + sizes.one.packed, options.memory_budget) << "no room is left";
    EXPECT_EQ(admission::dry_run_tokens(state, options, run).process, fit.need.process);
  }
}

TEST(StreamedExperts, LessThanALayerIsRefusedAndTheBudgetThatIsNamedDoes) {
  const std::string path = shipped("tasks-b");
  const Sizes sizes(path);
  const auto [code, said] = failure(with_budget(sizes.budget(sizes.layer - 8)), path);
  EXPECT_EQ(code, ErrorCode::memory);
  EXPECT_NE(said.find("with the 64 experts that a pass may ask of a layer"), std::string::npos)
      << said;
  const int64_t named = named_budget(said);
  const CompleteResult made = Model::open(path, with_budget(named)).complete(question());
  expect_same(made, sizes.answer);
  EXPECT_LE(made.peak_bytes.total, named);
}

TEST(StreamedExperts, WhatCannotReadThemIsRefusedByName) {
  const std::string path = shipped("tasks-b");
  const Sizes sizes(path);
  for (const std::string who : {"tensor=2", "moe=fused"}) {
    const std::string plan = who == "tensor=2" ? who : who + ",expert=2";
    const auto [code, said] = failure(with_budget(sizes.budget(sizes.layer), plan), path);
    EXPECT_EQ(code, ErrorCode::memory);
    EXPECT_NE(said.find("do not read experts while they run"), std::string::npos) << said;
    EXPECT_NE(said.find(who == "tensor=2" ? "ranks of tensor=N" : "ranks of moe=fused"),
              std::string::npos)
        << said;
    EXPECT_EQ(said.find("a pass may ask of a layer"), std::string::npos) << said;
  }
  RunOptions options = with_budget(sizes.budget(sizes.layer));
  options.precision = Precision::int8;
  const auto [code, said] = failure(options, path);
  EXPECT_EQ(code, ErrorCode::memory);
  EXPECT_NE(said.find("quantised folder"), std::string::npos) << said;
}

TEST(StreamedExperts, TheNextRequestFindsWhatStays) {
  const std::string path = shipped("tasks-b");
  const Sizes sizes(path);
  const RunOptions options = with_budget(sizes.budget(sizes.all - 20));
  const Model model = Model::open(path, options);
  const CompleteResult first = model.complete(question()), second = model.complete(question());
  expect_same(first, sizes.answer);
  expect_same(second, sizes.answer);
  EXPECT_LT(second.streamed->misses + 100, first.streamed->misses);
  EXPECT_LE(second.peak_bytes.total, options.memory_budget);
  EXPECT_EQ(second.peak_bytes.weights, first.peak_bytes.weights) << "it counts in each request";
  CompleteRequest more = question();  // with less room for experts
  more.prompts.insert(more.prompts.end(), {"rev stone=", "rev house="});
  const CompleteResult third = model.complete(more);
  EXPECT_LE(third.peak_bytes.total, options.memory_budget);
  EXPECT_LT(third.streamed->resident, second.streamed->resident);
  EXPECT_EQ(third.completions[0].confidences, sizes.answer.completions[0].confidences);
}

TEST(StreamedExperts, TheNextRequestOfRanksFindsWhatStays) {
  const std::string path = shipped("tasks-b"), plan = "expert=2";
  const int64_t least = named_budget(failure(with_budget(1000, plan), path).second);
  const Sizes sizes(path);
  const RunOptions options = with_budget(least + 40 * sizes.one.packed, plan);
  const Model model = Model::open(path, options);
  const CompleteResult first = model.complete(question()), second = model.complete(question());
  expect_same(second, sizes.answer);
  EXPECT_LE(second.peak_bytes.total, options.memory_budget);
  ASSERT_EQ(second.per_rank.size(), 2u);
  for (size_t r = 0; r < 2; ++r)
    EXPECT_LT(second.per_rank[r].streamed->misses, first.per_rank[r].streamed->misses);
}

TEST(StreamedExperts, RequestsAtOnceHaveCachesOfTheirOwn) {
  const std::string path = shipped("tasks-b");
  const Sizes sizes(path);
  const RunOptions options = with_budget(sizes.budget(sizes.layer + 20));
  const Model model = Model::open(path, options);
  std::vector<CompleteResult> made(3);
  {
    std::vector<std::jthread> threads;
    for (CompleteResult& one : made)
      threads.emplace_back([&] { one = model.complete(question()); });
  }
  for (const CompleteResult& one : made) {
    expect_same(one, sizes.answer);
    EXPECT_LE(one.peak_bytes.total, options.memory_budget);
    EXPECT_EQ(one.streamed->hits + one.streamed->misses, one.experts_read);
  }
}

// A batch with two joining prompts, on the ranks of a plan.
void expect_joined(const std::string& path, const RunOptions& options, const Sizes& sizes,
                   const CompleteRequest& q) {
  const Model model = Model::open(path, options);
  std::vector<std::vector<int32_t>> more;
  for (const char* prompt : {"sort hello=", "add 27+35="})
    more.push_back(model.tokenize({.prompts = {prompt}, .chat = "", .raw = false})[0].ids);
  CompleteControl control;
  control.join = [&] { return std::exchange(more, {}); };
  const CompleteResult made = model.complete(q, control);
  ASSERT_EQ(made.completions.size(), 3u);
  EXPECT_LE(made.peak_bytes.total, options.memory_budget);
  ASSERT_TRUE(made.streamed);
  const CompleteResult others =
      Model::open(path, golden::options(Precision::bf16)).complete(question());
  EXPECT_EQ(made.completions[0].confidences, sizes.answer.completions[0].confidences);
  EXPECT_EQ(made.completions[1].confidences, others.completions[0].confidences);
  EXPECT_EQ(made.completions[2].confidences, others.completions[1].confidences);
}

TEST(StreamedExperts, PromptsJoinWithinTheBudget) {
  const std::string path = shipped("tasks-b");
  CompleteRequest q = question();
  q.prompts = {"rev stone="};
  const Sizes sizes(path, q);
  expect_joined(path, with_budget(sizes.budget(sizes.all - 30)), sizes, q);
  const std::string plan = "expert=2";
  const int64_t least = named_budget(failure(with_budget(1000, plan), path).second);
  expect_joined(path, with_budget(least + 20 * sizes.one.packed, plan), sizes, q);
}

TEST(StreamedExperts, ATalkGoesOn) {
  const std::string path = shipped("tasks-b");
  const Sizes sizes(path);
  CompleteRequest q = question();
  q.prompts = {"sum 1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7 8 9 1 2 3 4 5="};
  PrefixCache whole, streamed;
  const Model all = Model::open(path, golden::options(Precision::bf16)),
              some = Model::open(path, with_budget(sizes.budget(sizes.layer + 20)));
  for (int turn = 0; turn < 2; ++turn) {
    CompleteControl a, b;
    a.prefix = &whole;
    b.prefix = &streamed;
    const CompleteResult made = some.complete(q, b);
    expect_same(made, all.complete(q, a));
    EXPECT_TRUE(made.streamed);
    q.prompts[0] += made.completions[0].text;
  }
  EXPECT_GT(streamed.tokens(), 0);
}

TEST(StreamedExperts, ForwardAndInspectStreamToo) {
  const std::string path = shipped("tasks-b");
  const Sizes sizes(path);
  const RunOptions options = with_budget(sizes.budget(sizes.layer + 20));
  const std::vector<int32_t> ids(40, 7);
  const auto logits = [&](const RunOptions& run) {
    const TensorView input{ElementType::i32, {1, 40}, ids.data()};
    auto made = Model::open(path, run).forward(
        {.component = ModelPart::model, .tensors = {{"input_ids", input}}});
    return made.at("logits").bytes;
  };
  EXPECT_EQ(logits(options), logits(golden::options(Precision::bf16)));
  const int64_t peak =
      Model::open(path, golden::options(Precision::bf16)).inspect().memory.at("peak");
  const RunOptions less = with_budget(peak - 30 * sizes.one.packed);
  const Inspection found = Model::open(path, less).inspect();
  EXPECT_EQ(found.unfit, "");
  EXPECT_TRUE(std::ranges::any_of(found.notes, [](const std::string& note) {
    return note.find(" 162 of 192 stay in memory") != std::string::npos;
  })) << found.notes.size();
  EXPECT_LE(found.memory.at("process"), less.memory_budget);
}

}  // namespace
}  // namespace tessera
