#include "nn/moe/recorded_routing.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tensor/scope.h"
#include "tessera/error.h"

namespace tessera::nn {
namespace {

Tensor ids_of(std::vector<int32_t> ids) {
  const auto rows = static_cast<int64_t>(ids.size()) / 2;
  return Tensor::from(std::span<const int32_t>(ids), {rows, 2});
}

std::vector<int32_t> values(const Tensor& ids) {
  return {ids.data<int32_t>(), ids.data<int32_t>() + ids.elements()};
}

// Two steps of two sequences of four tokens: token t of sequence s has experts 4 s + t and 9.
RecordedRouting recorded() {
  RecordedRouting record(2, 2, 4);
  for (int step = 0; step < 2; ++step)
    for (const int half : {0, 1})
      for (const int sequence : {1, 0}) {
        const TokenView view{-1, {0}, {}, {{0, {2 * half, 2 * half + 2}}}, {}};
        const int first = 4 * sequence + 2 * half;
        record.note({.site = 3, .step = {.index = step}, .view = view}, {sequence},
                    ids_of({first, 9, first + 1, 9}));
      }
  return record;
}

TEST(RecordedRouting, FindsTokensInAnotherOrderAndSplit) {
  const RecordedRouting record = recorded();
  EXPECT_TRUE(record.complete());
  EXPECT_EQ(record.experts(), 10);
  const TokenView view{-1, {0, 1}, {}, {{0, {1, 4}}, {1, {0, 2}}}, {}};
  const MoeCall call{.site = 3, .step = {.index = 1}, .view = view};
  EXPECT_EQ(values(record.ids(call, {1, 0}, 5, 2)),
            (std::vector<int32_t>{5, 9, 6, 9, 7, 9, 0, 9, 1, 9}));
  const MoeCall part{.site = 3, .step = {.index = 1}, .view = view, .first = 2};
  EXPECT_EQ(values(record.ids(part, {1, 0}, 2, 2)), (std::vector<int32_t>{7, 9, 0, 9}));
}

TEST(RecordedRouting, IsReadAsItIsWritten) {
  const RecordedRouting record = recorded(), read(record.tensors());
  EXPECT_EQ(read.steps(), 2);
  EXPECT_EQ(read.sequences(), 2);
  EXPECT_EQ(read.tokens(), 4);
  EXPECT_EQ(read.layers(), 1);
  EXPECT_EQ(values(read.tensors().at("routing.3")), values(record.tensors().at("routing.3")));
}

TEST(RecordedRouting, RefusesWhatItDoesNotHave) {
  const RecordedRouting record = recorded();
  const TokenView view{-1, {0}, {}, {{0, {0, 4}}}, {}}, longer{-1, {0}, {}, {{0, {0, 5}}}, {}};
  const auto ask = [&](const MoeCall& call, int sequence, int64_t count, int64_t slots) {
    return record.ids(call, {sequence}, count, slots);
  };
  const MoeCall call{.site = 3, .view = view};
  EXPECT_NO_THROW(ask(call, 1, 4, 2));
  EXPECT_THROW(ask({.site = 2, .view = view}, 1, 4, 2), Error);
  EXPECT_THROW(ask({.site = 3, .step = {.index = 2}, .view = view}, 1, 4, 2), Error);
  EXPECT_THROW(ask({.site = 3, .view = longer}, 1, 5, 2), Error);
  EXPECT_THROW(ask(call, 2, 4, 2), Error);
  EXPECT_THROW(ask(call, 1, 4, 1), Error);
  EXPECT_THROW(ask(call, 1, 5, 2), Error);
  EXPECT_THROW(RecordedRouting({{"routing.0", ids_of({1, 2})}}), Error);
  std::map<std::string, Tensor> layers = record.tensors();
  layers["routing.4"] = Tensor::zeros({1, 2, 4, 2}, DType::i32);
  EXPECT_THROW(RecordedRouting{layers}, Error);
}

TEST(RecordedRouting, KnowsWhenTokensAreMissing) {
  RecordedRouting record(1, 1, 4);
  EXPECT_TRUE(record.complete()) << "a model without experts";
  const TokenView view{-1, {0}, {}, {{0, {0, 2}}}, {}};
  record.note({.site = 0, .view = view}, {0}, ids_of({0, 1, 2, 3}));
  EXPECT_FALSE(record.complete());
}

TEST(RecordedPolicy, GivesIdsOnTheHostAndCountsTheRouter) {
  const auto record = std::make_shared<const RecordedRouting>(recorded());
  const TokenView view{-1, {0}, {}, {{0, {0, 4}}}, {}};
  tensor::Scope scope;
  scope.meter = std::make_shared<tensor::Meter>();
  const tensor::BindScope bind(scope);
  const Tensor logits = Tensor::empty({4, 16}, DType::f32, tensor::Device::meta);
  const ops::Routing routing =
      RecordedPolicy(record, {1}).choose({.site = 3, .view = view}, {}, logits, {.top_k = 2});
  EXPECT_EQ(values(routing.ids), (std::vector<int32_t>{4, 9, 5, 9, 6, 9, 7, 9}));
  EXPECT_EQ(scope.meter->entries().at("route").calls, 1);
}

}  // namespace
}  // namespace tessera::nn
