#include "nn/moe/log.h"

#include <gtest/gtest.h>

#include "tensor/recording.h"
#include "tensor/recording_runtime.h"
#include "tensor/scope.h"

namespace tessera::nn {
namespace {

const TokenView kView{-1, {0}, {}, {{0, {0, 2}}}, {2}};

Tensor ids_of(const std::vector<int32_t>& ids) {
  return Tensor::from(std::span<const int32_t>(ids), {2, int64_t(ids.size()) / 2});
}

TEST(MoeLog, CountsRowsAndDistinctExpertsOfWhatWasRouted) {
  MoeLog log;
  log.add({.site = 4, .step = {.index = 7}, .view = kView}, ids_of({3, -1, 3, 0}), 8);
  ASSERT_EQ(log.events().size(), 1u);
  const MoeEvent event = log.events()[0];
  EXPECT_EQ(event.step, 7);
  EXPECT_EQ(event.site, 4);
  EXPECT_EQ(event.tokens, 2);
  EXPECT_EQ(event.assignments, (std::vector<int64_t>{3}));
  EXPECT_EQ(event.distinct, 2);
  EXPECT_EQ(log.load(), (std::vector<int64_t>{1, 0, 0, 2, 0, 0, 0, 0}));
  log.chose(ids_of({3, 7}), 8);
  EXPECT_EQ(log.load(), (std::vector<int64_t>{1, 0, 0, 3, 0, 0, 0, 1}));
  EXPECT_EQ(log.events().size(), 1u) << "the caller adds its event";
}

TEST(MoeLog, KeepsTheOrderOfCallsHoweverLateItCounts) {
  MoeLog log;
  for (int i = 0; i < 700; ++i) {
    if (i % 3 == 0)
      log.add({.step = i, .site = 0, .distinct = 5, .assignments = {1}});
    else
      log.add({.site = 1, .step = {.index = i}, .view = kView}, ids_of({i % 4, 0}), 4);
  }
  ASSERT_EQ(log.events().size(), 700u);
  for (int i = 0; i < 700; ++i) {
    EXPECT_EQ(log.events()[size_t(i)].step, i);
    EXPECT_EQ(log.events()[size_t(i)].distinct, i % 3 == 0 ? 5 : i % 4 == 0 ? 1 : 2);
  }
}

TEST(MoeLog, OnMetaTheScopeSaysHowManyExpertsAreTouched) {
  tensor::Scope scope;
  scope.assumptions.touched_experts = 0.5;
  const tensor::BindScope bind(scope);
  MoeLog log;
  log.add({.site = 0, .step = {}, .view = kView},
          Tensor::empty({2, 3}, DType::i32, tensor::Device::meta), 8);
  EXPECT_EQ(log.events()[0].distinct, 4);
  EXPECT_EQ(log.events()[0].assignments, (std::vector<int64_t>{6}));
}

TEST(MoeLog, RecordedCallsAreCountedEachTimeTheyAreMade) {
  const tensor::UseRecordingRuntime device;
  MoeLog log;
  const Tensor ids = ids_of({1, 2}).to(tensor::Device::cuda);
  const auto recording = tensor::Recording::attempt(
      [&] { log.add({.site = 3, .step = {.index = 1}, .view = kView}, ids, 4); });
  ASSERT_NE(recording, nullptr);
  EXPECT_TRUE(log.events().empty()) << "recorded, not done";
  for (int step : {1, 2}) log.replayed(step);
  ASSERT_EQ(log.events().size(), 2u);
  EXPECT_EQ(log.events()[1].step, 2);
  EXPECT_EQ(log.events()[1].site, 3);
  EXPECT_EQ(log.events()[1].distinct, 2);
  EXPECT_EQ(log.load(), (std::vector<int64_t>{0, 2, 2, 0})) << "twice";
}

TEST(MoeLog, RemembersTheMostThatWasKept) {
  MoeLog log;
  for (int64_t bytes : {3, 9, 4}) log.keep(bytes);
  EXPECT_EQ(log.peak_kept_bytes(), 9);
}

TEST(MoeLog, RemembersTheMostThatCame) {
  MoeLog log;
  EXPECT_EQ(log.coming_bound(), 0);
  for (int64_t bytes : {3, 9, 4}) log.expect(bytes, 20);
  EXPECT_EQ(log.most_coming(), 9);
  EXPECT_EQ(log.coming_bound(), 20);
}

}  // namespace
}  // namespace tessera::nn
