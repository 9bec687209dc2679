#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "completion/recorder.h"
#include "ops/routing.h"
#include "pipeline/complete.h"
#include "runtime/open_model.h"
#include "tessera/engine.h"
#include "tessera/study.h"
#include "whole/text_model.h"

namespace tessera {
namespace {

ExpertStudy study(const golden::TextModel& folder, const std::vector<std::string>& selects) {
  folder.write("tasks.jsonl",
               "{\"prompt\": \"one\", \"answer\": \"x\"}\n{\"prompt\": \"a longer one\", "
               "\"answer\": \"y\"}");
  ExpertsRequest request;
  request.selects = selects;
  request.max_tokens = 16;
  return study_experts(folder.path(), golden::options(Precision::f32), request);
}

/// The experts of each token in each deciding pass, by layer, as the model's router has them.
struct Routes {
  bool deciding = false;
  std::map<int, std::vector<nn::Tensor>> passes;
  std::vector<int> blocks;  ///< blocks of the sites
};

/// Looks on while `prompt` is answered.
void watch(const golden::TextModel& folder, const std::string& prompt, Routes& routes) {
  runtime::ModelState state;
  runtime::open_model(folder.path(), golden::options(Precision::f32), state);
  for (const nn::ExpertSite& site : state.language->geometry(tensor::DType::f32).experts)
    routes.blocks.push_back(site.block);
  CompleteRequest request;
  request.prompts = {prompt};
  request.max_tokens = 16;
  request.as_published = true;
  completion::PassWatch looking;
  looking.before = [&](const auto& prompts) { routes.deciding = !prompts.empty(); };
  looking.experts = [&](const nn::MoeWork& work) {
    const nn::Router& router = work.gate.router();
    if (routes.deciding)
      routes.passes[work.call.site].push_back(
          ops::route(router.logits(work.tokens), router.options).ids);
  };
  pipeline::complete(state, request, {}, looking);
}

double cosine(const std::map<int32_t, double>& a, const std::map<int32_t, double>& b) {
  double dot = 0, aa = 0, bb = 0;
  for (const auto& [expert, hits] : a) {
    aa += hits * hits;
    if (b.contains(expert)) dot += hits * b.at(expert);
  }
  for (const auto& [expert, hits] : b) bb += hits * hits;
  return dot / std::sqrt(aa * bb);
}

// Counts again from the experts chosen by the layers, without the study's observer.
TEST(EvalExperts, DistinctExpertsAndLikenessAreThoseOfTheLayers) {
  for (const char* name : {"llada2", "llada_moe"}) {
    const golden::TextModel folder(name);
    folder.write("tasks.jsonl", "{\"prompt\": \"a longer one\", \"answer\": \"x\"}");
    ExpertsRequest request;
    request.selects = {"des-vote:0.5"};
    request.max_tokens = 16;
    const ExpertStudy found =
        study_experts(folder.path(), golden::options(Precision::f32), request);
    Routes routes;
    watch(folder, "a longer one", routes);
    size_t distinct_rows = 0, alike = 0;
    for (const auto& [site, passes] : routes.passes) {
      const int layer = routes.blocks.at(static_cast<size_t>(site));
      std::vector<std::map<int32_t, double>> hits;
      std::map<int64_t, std::vector<double>> distinct;
      for (const nn::Tensor& ids : passes) {
        std::set<int32_t> seen;
        hits.emplace_back();
        for (int64_t t = 0; t < ids.size(0); ++t) {
          for (int64_t k = 0; k < ids.size(1); ++k) {
            seen.insert(ids.row<int32_t>(t)[k]);
            ++hits.back()[ids.row<int32_t>(t)[k]];
          }
          distinct[t + 1].push_back(double(seen.size()));
        }
      }
      for (const UniqueExperts& u : found.unique) {
        if (u.layer != layer) continue;
        const std::vector<double>& all = distinct.at(u.tokens);
        ASSERT_EQ(u.samples, int64_t(all.size())) << name << " " << u.tokens;
        double sum = 0;
        for (const double count : all) sum += count;
        EXPECT_NEAR(u.distinct, sum / double(all.size()), 1e-12) << name << " " << u.tokens;
        ++distinct_rows;
      }
      double sum = 0;
      for (size_t i = 1; i < hits.size(); ++i) sum += cosine(hits[i - 1], hits[i]);
      for (const HitLikeness& l : found.likeness) {
        if (l.layer != layer) continue;
        ASSERT_EQ(l.samples, int64_t(hits.size()) - 1) << name;
        EXPECT_NEAR(l.cosine, sum / double(l.samples), 1e-12) << name;
        ++alike;
      }
    }
    EXPECT_EQ(distinct_rows, found.unique.size());
    EXPECT_GE(distinct_rows, 2u * 4);
    EXPECT_EQ(alike, found.likeness.size());
    EXPECT_GE(alike, 2u);
  }
}

TEST(EvalExperts, CountsDistinctExpertsOfGrowingCounts) {
  const golden::TextModel folder("llada2");  // 16 experts, 4 a token, layers 1 and 2 have experts
  const ExpertStudy found = study(folder, {});
  ASSERT_FALSE(found.unique.empty());
  for (const auto& u : found.unique) {
    EXPECT_TRUE(u.layer == 1 || u.layer == 2);
    EXPECT_GE(u.distinct, 4);
    EXPECT_LE(u.distinct, 16);
    EXPECT_GT(u.samples, 0);
  }
  EXPECT_EQ(found.unique[0].tokens, 1);
  EXPECT_DOUBLE_EQ(found.unique[0].distinct, 4);
  EXPECT_DOUBLE_EQ(found.unique[0].independent, 4);
  EXPECT_NEAR(found.unique[1].independent, 7, 1e-12);  // 16 (1 - (3/4)^2)
  EXPECT_EQ(found.coresets.size(), 2u * 6);
  EXPECT_EQ(found.decided, 1);
  ASSERT_EQ(found.likeness.size(), 2u);
  for (const auto& l : found.likeness) {
    EXPECT_GT(l.cosine, 0);
    EXPECT_GT(l.samples, 0);
  }
}

TEST(EvalExperts, AFullCoresetLosesNothingAndVotesBeatChance) {
  const golden::TextModel folder("llada_moe");
  const ExpertStudy found = study(folder, {"des-vote:1", "des-vote:0.5"});
  double voted = 0, random = 0, hits = 0;
  for (const auto& c : found.coresets) {
    if (c.select == "des-vote:1") {
      EXPECT_EQ(c.size, 16);
      EXPECT_EQ(c.rule.recall, 1);
      EXPECT_EQ(c.rule.residual, 0);
      EXPECT_EQ(c.random.residual, 0);
      EXPECT_NEAR(c.rule.hits, 1, 1e-12);
      continue;
    }
    EXPECT_EQ(c.size, 8);
    voted += c.rule.recall;
    random += c.random.recall;
    hits += c.rule.hits - c.random.hits;
    EXPECT_LT(c.rule.hits, 1 - 1e-6);
  }
  EXPECT_GT(voted, random);
  EXPECT_GT(hits, 0);
  const auto json = base::Json::parse(to_json(found));
  EXPECT_EQ(json.at("coresets").size(), found.coresets.size());
  EXPECT_EQ(json.at("latency").at("explained"), found.explained);
}

// A rule may apply to open tokens of a canvas alone: all in the first pass, some later.
TEST(EvalExperts, CanvasesCountToTheirLengthAndRulesLookAtOpenTokens) {
  const golden::TextModel folder("diffusion_gemma_canvas256");
  folder.write("tasks.jsonl", "{\"prompt\": \"a longer one\", \"answer\": \"x\"}");
  const auto found = [&](int canvas, int passes) {
    ExpertsRequest request;
    request.selects = {"des-vote:0.5", "des-vote:0.5,over=open", "des-max:0.25,k=2,over=open"};
    request.max_tokens = 16;
    request.complete.block = canvas;
    request.complete.steps = passes;
    request.complete.decode = "canvas:entropy_bound=8";
    return study_experts(folder.path(), golden::options(Precision::f32), request);
  };
  const auto quality = [](const ExpertStudy& study, const std::string& select) {
    std::vector<std::array<double, 3>> all;
    for (const CoresetQuality& c : study.coresets)
      if (c.select == select) all.push_back({c.size, c.rule.recall, c.rule.residual});
    EXPECT_EQ(all.size(), 3u) << select;
    return all;
  };
  const ExpertStudy once = found(16, 1), often = found(16, 6);
  EXPECT_EQ(quality(once, "des-vote:0.5"), quality(once, "des-vote:0.5,over=open"));
  EXPECT_NE(quality(often, "des-vote:0.5"), quality(often, "des-vote:0.5,over=open"));
  for (const auto& one : quality(often, "des-max:0.25,k=2,over=open")) EXPECT_EQ(one[0], 8);
  std::set<int64_t> counts;
  for (const UniqueExperts& u : found(256, 1).unique) counts.insert(u.tokens);
  EXPECT_EQ(counts, (std::set<int64_t>{1, 2, 4, 8, 16, 32, 64, 128, 256}));
}

TEST(EvalExperts, RulesWithoutACoresetAreRefused) {
  const golden::TextModel folder("llada_moe");
  EXPECT_NE(golden::error_of([&] { study(folder, {"topk:2"}); }).find("no coreset"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera
