#include "load/weight_store.h"

#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <thread>

#include "kernels/packed_weight.h"
#include "load/quantisation.h"
#include "ops/packing.h"
#include "scratch_folder.h"
#include "tensor/fake_runtime.h"
#include "tensor/scope.h"

namespace tessera::load {
namespace {

using tensor::DType;
using tensor::Tensor;

Tensor counted(const tensor::Shape& shape) {
  std::vector<float> values(size_t(shape.elements()));
  std::iota(values.begin(), values.end(), 0.0f);
  return Tensor::from(std::span<const float>(values), shape);
}

TensorSet written(const ScratchFolder& folder) {
  const std::string path = folder.path("model.safetensors");
  if (!std::filesystem::exists(path))
    write_safetensors(path, {{"w", counted({48, 32})},
                             {"u", counted({48, 32})},
                             {"b", counted({48})},
                             {"filter", counted({8, 4, 3, 3})},
                             {"filter.bias", counted({8})},
                             {"ids", Tensor::zeros({4}, DType::i64)}});
  return open_component(folder.path());
}

}  // namespace

TEST(WeightStore, PacksOnceForAllWhoOpenTheSameFile) {
  const ScratchFolder folder;
  const WeightStore store;
  const auto one = store.open(written(folder)), two = store.open(written(folder));
  const ops::Weight w = one->matrix("w", 48, 32, DType::f32);
  EXPECT_EQ(w, two->matrix("w", 48, 32, DType::f32));
  EXPECT_NE(w, one->matrix("w", 48, 32, DType::bf16));
  EXPECT_NE(w, one->matrix("u", 48, 32, DType::f32));
  EXPECT_EQ(one->paired("w", "u", 48, 32, DType::f32), two->paired("w", "u", 48, 32, DType::f32));
  const Tensor b = one->vector("b", 48);
  EXPECT_EQ(b.raw(), two->vector("b", 48).raw());
  EXPECT_EQ(b.to_floats()[47], 47.0f);
  EXPECT_EQ(w->n, 48);
  EXPECT_EQ(w->k, 32);
}

// A single matrix and a pair, in rows and in panels, after `before` bytes of another tensor.
void write_orders(const std::string& path, int64_t before) {
  const auto random = [](int64_t n, int64_t k, int64_t seed) {
    Tensor w = Tensor::empty({n, k}, DType::f32);
    for (int64_t i = 0; i < n * k; ++i) w.data<float>()[i] = float((i * 7919 + seed) % 255 - 127);
    return w;
  };
  std::vector<PlannedTensor> all;
  const auto add = [&](const std::string& name, const Tensor& x, const char* dtype = "I8") {
    all.push_back(
        {name, dtype, {x.shape().begin(), x.shape().end()}, x.bytes(), [x] { return x; }});
  };
  if (before > 0) add("first", Tensor::zeros({before}, DType::u8), "U8");
  for (const bool int4 : {false, true}) {
    const std::string mark = int4 ? "4" : "";
    const char *values = int4 ? "U8" : "I8", *scales = int4 ? "BF16" : "F32";
    const auto stored = [&](int64_t n, int64_t k, int64_t seed) {
      return int4 ? ops::quantise_groups(random(n, k, seed))
                  : ops::quantise_rows(random(n, k, seed));
    };
    const ops::StoredMatrix m = stored(64, 128, 1), g = stored(48, 192, 2), u = stored(48, 192, 3);
    add("m" + mark, ops::panels_of(m, {}).values, values);
    const Tensor two = ops::panels_of(g, u).values.reshape({6, 3, ops::step_bytes(int4) / 2});
    add("g" + mark, two.slice(0, 0, 3), values);  // halves of their bytes
    add("u" + mark, two.slice(0, 3, 6), values);
    for (const auto& [name, x] : {std::pair{"m", &m}, {"g", &g}, {"u", &u}}) {
      add("rows." + (name + mark), x->values, values);
      add("rows." + (name + mark) + "_scale", x->scales, scales);
      // Earlier folders hold the scales of int4 panels a second time.
      if (!int4 || x == &m) add(name + mark + "_scale", x->scales, scales);
    }
  }
  add("last", Tensor::zeros({512}, DType::u8), "U8");
  write_safetensors(path, all);
}

TEST(WeightStore, WhatLiesInPanelsIsWhatRowsBecome) {
  const ScratchFolder folder;
  write_orders(folder.path("model.safetensors"), 0);
  TensorSet tensors = open_component(folder.path());
  const auto same = [](const ops::Weight& a, const ops::Weight& b) {
    const auto floats = [](const Tensor& x) {
      return x.defined() ? x.to_floats() : std::vector<float>();
    };
    return floats(a->data) == floats(b->data) && floats(a->scales) == floats(b->scales) &&
           a->isa == b->isa && a->int4 == b->int4;
  };
  for (const bool maps : {false, true}) {
    tensors.use_mapped(maps);
    const WeightStore store;
    const auto weights = store.open(tensors);
    for (const nn::Cut& cut : {nn::Cut{}, nn::Cut{0, {{16, 48}}}, nn::Cut{1, {{0, 64}}}}) {
      EXPECT_TRUE(same(weights->matrix("m", 64, 128, DType::i8, cut),
                       weights->matrix("rows.m", 64, 128, DType::i8, cut)));
      EXPECT_TRUE(same(weights->paired("g", "u", 48, 192, DType::i8, cut),
                       weights->paired("rows.g", "rows.u", 48, 192, DType::i8, cut)));
    }
    for (const nn::Cut& cut : {nn::Cut{}, nn::Cut{0, {{16, 48}}}, nn::Cut{1, {{32, 96}}}}) {
      EXPECT_TRUE(same(weights->matrix("m4", 64, 128, DType::i8, cut),
                       weights->matrix("rows.m4", 64, 128, DType::i8, cut)));
      EXPECT_TRUE(same(weights->paired("g4", "u4", 48, 192, DType::i8, cut),
                       weights->paired("rows.g4", "rows.u4", 48, 192, DType::i8, cut)));
    }
    EXPECT_EQ(elements_of(tensors, "m4") + elements_of(tensors, "g4"), 64 * 128 + 48 * 192);
    EXPECT_EQ(elements_of(tensors, "rows.m4"), elements_of(tensors, "m"));
    if (!ops::packs_in_panels(tensor::Device::cpu)) continue;
    for (const char* name : {"m", "m4"}) {
      const auto at = tensors.file(name).map(name, tensors.entry(name).bytes());
      const ops::Weight m = weights->matrix(name, 64, 128, DType::i8);
      EXPECT_EQ(m->data.raw() == static_cast<const void*>(at.get()), maps) << name;
    }
    const auto gate = tensors.file("g4").map("g4", tensors.entry("g4").bytes());
    const ops::Weight pair = weights->paired("g4", "u4", 48, 192, DType::i8);
    EXPECT_EQ(pair->data.raw() == static_cast<const void*>(gate.get()), maps);
  }
}

TEST(WeightStore, WhatIsPackedOrTakenInRowsIsMappedToo) {
  const ScratchFolder folder;
  Tensor w = Tensor::empty({32, 64}, DType::bf16);
  for (uint16_t i = 0; i < 32 * 64; ++i) w.data<uint16_t>()[i] = i * 7;
  write_safetensors(folder.path("model.safetensors"), {{"a", w},
                                                       {"last", Tensor::zeros({512}, DType::u8)},
                                                       {"z", Tensor::zeros({512}, DType::f32)}});
  TensorSet tensors = open_component(folder.path());
  const WeightStore store, other;
  const auto read = store.open(tensors);
  tensors.use_mapped(true);
  const auto mapped = other.open(tensors);
  auto memory = std::make_shared<tensor::MemoryTracker>();
  {
    tensor::Scope scope = tensor::current_scope();
    scope.memory = memory;
    const tensor::BindScope bound(scope);
    const Tensor rows = mapped->get("a", {32, 64});
    EXPECT_EQ(rows.raw(), static_cast<const void*>(tensors.file("a").map("a", w.bytes()).get()));
    EXPECT_EQ(memory->current(tensor::MemoryClass::weights), w.bytes()) << "counts as it is read";
    EXPECT_EQ(rows.to_floats(), read->get("a", {32, 64}).to_floats());
  }
  EXPECT_EQ(mapped->matrix("a", 32, 64, DType::bf16)->data.to_floats(),
            read->matrix("a", 32, 64, DType::bf16)->data.to_floats());
  EXPECT_EQ(mapped->vector("z", 512).to_floats(), read->vector("z", 512).to_floats());
}

// A held table is packed from memory, which needs no file.
TEST(WeightStore, RowsThatAreReadWhilePackingAreThoseOfATable) {
  const ScratchFolder folder;
  const WeightStore store, other;
  const auto by_rows = store.open(written(folder)), held = other.open(written(folder));
  const Tensor table = held->get("w", {48, 32}), up = held->get("u", {48, 32});
  for (const DType dtype : {DType::f32, DType::bf16, DType::i8}) {
    EXPECT_EQ(by_rows->matrix("w", 48, 32, dtype)->data.to_floats(),
              held->matrix("w", 48, 32, dtype)->data.to_floats());
    EXPECT_EQ(by_rows->paired("w", "u", 48, 32, dtype)->data.to_floats(),
              held->paired("w", "u", 48, 32, dtype)->data.to_floats());
  }
}

TEST(WeightStore, ATableThatIsHeldIsNotReadAgain) {
  const ScratchFolder folder;
  const WeightStore store, other;
  const auto weights = store.open(written(folder));
  const Tensor table = weights->get("w", {48, 32});
  const ops::Weight read = other.open(written(folder))->matrix("w", 48, 32, DType::bf16);
  std::filesystem::resize_file(folder.path("model.safetensors"), 100);
  EXPECT_EQ(weights->matrix("w", 48, 32, DType::bf16)->data.to_floats(), read->data.to_floats());
  EXPECT_THROW(weights->matrix("u", 48, 32, DType::bf16), Error);
}

TEST(WeightStore, WhatKernelsCannotReadWhereItLiesIsRead) {
  const ScratchFolder folder;
  write_orders(folder.path("model.safetensors"), 40);  // not at a multiple of 64
  TensorSet tensors = open_component(folder.path());
  tensors.use_mapped(true);
  EXPECT_EQ(tensors.file("m").map("m", 64 * 128), nullptr);
  EXPECT_EQ(tensors.file("last").map("last", 512), nullptr) << "nothing is behind it";
  const WeightStore store;
  const auto weights = store.open(tensors);
  EXPECT_EQ(weights->matrix("m", 64, 128, DType::i8)->data.to_floats(),
            weights->matrix("rows.m", 64, 128, DType::i8)->data.to_floats());
}

TEST(WeightStore, HalvesBelongTogether) {
  const ScratchFolder folder;
  write_orders(folder.path("model.safetensors"), 0);
  const WeightStore store;
  const auto weights = store.open(open_component(folder.path()));
  for (const auto& read : std::vector<std::function<void()>>{
           [&] { weights->matrix("g", 48, 192, DType::i8); },
           [&] { weights->paired("m", "m", 64, 128, DType::i8); },
           [&] { weights->paired("g", "rows.u", 48, 192, DType::i8); },
           [&] { weights->paired("rows.g", "u", 48, 192, DType::i8); }})
    expect_says(model_error(read), "does not lie as it is read here");
  expect_says(model_error([&] { weights->matrix("m", 64, 64, DType::i8); }), "has the shape");
  expect_says(model_error([&] { weights->matrix("m", 64, 128, DType::bf16); }), "is quantised");
}

TEST(WeightStore, AFileThatChangedIsNotMapped) {
  const ScratchFolder folder;
  write_orders(folder.path("model.safetensors"), 0);
  TensorSet tensors = open_component(folder.path());
  tensors.use_mapped(true);
  const WeightStore store;
  const auto weights = store.open(tensors);
  std::filesystem::resize_file(folder.path("model.safetensors"), 5000);
  expect_says(model_error([&] { weights->matrix("m", 64, 128, DType::i8); }), "was changed");
}

TEST(WeightStore, PacksEverySliceOnce) {
  const ScratchFolder folder;
  const WeightStore store;
  const auto one = store.open(written(folder)), two = store.open(written(folder));
  const nn::Cut rows{0, {{16, 48}}}, columns{1, {{0, 8}, {16, 24}}}, others{1, {{0, 8}, {24, 32}}};
  const ops::Weight w = one->matrix("w", 48, 32, DType::f32, rows);
  EXPECT_EQ(w->n, 32);
  EXPECT_EQ(w, two->matrix("w", 48, 32, DType::f32, rows));
  EXPECT_NE(w, one->matrix("w", 48, 32, DType::f32));
  const ops::Weight c = one->matrix("w", 48, 32, DType::f32, columns);
  EXPECT_EQ(c->k, 16);
  EXPECT_EQ(c, two->matrix("w", 48, 32, DType::f32, columns));
  const ops::Weight d = one->matrix("w", 48, 32, DType::f32, others);
  EXPECT_NE(c, d);
  const std::vector<float> ones(16, 1.0f);
  const Tensor x = Tensor::from(std::span<const float>(ones), {1, 16});
  EXPECT_EQ(ops::matmul(x, d).to_floats()[0] - ops::matmul(x, c).to_floats()[0], 8 * 8);
  EXPECT_EQ(one->paired("w", "u", 48, 32, DType::f32, rows),
            two->paired("w", "u", 48, 32, DType::f32, rows));
  const Tensor b = one->vector("b", 48, rows);
  EXPECT_EQ(b.raw(), two->vector("b", 48, rows).raw());
  EXPECT_EQ(b.to_floats()[0], 16.0f);
  EXPECT_EQ(b.size(0), 32);
  EXPECT_THROW(one->matrix("w", 32, 32, DType::f32, rows), Error) << "sizes are those of the file";
}

TEST(WeightStore, EachRankCountsWhatRanksShare) {
  using tensor::MemoryClass;
  const ScratchFolder folder;
  const WeightStore store;
  const auto weights = store.open(written(folder));
  const auto process = std::make_shared<tensor::MemoryTracker>();
  const auto load = [&](const std::shared_ptr<tensor::MemoryTracker>& rank) {
    tensor::Scope scope;
    scope.memory = rank;
    const tensor::BindScope bind(scope);
    return std::pair(weights->matrix("w", 48, 32, DType::f32), weights->vector("b", 48));
  };
  const auto one = std::make_shared<tensor::MemoryTracker>(process);
  const auto two = std::make_shared<tensor::MemoryTracker>(process);
  auto first = load(one);
  const int64_t bytes = process->current(MemoryClass::weights);
  EXPECT_EQ(bytes, first.first->bytes() + 48 * 4);
  {
    const auto second = load(two), again = load(two);
    EXPECT_EQ(second.first.get(), first.first.get());
    EXPECT_EQ(two->current(MemoryClass::weights), bytes) << "once a rank";
    EXPECT_EQ(load(one).first.get(), first.first.get());
    EXPECT_EQ(one->current(MemoryClass::weights), bytes);
    EXPECT_EQ(process->current(MemoryClass::weights), bytes) << "in memory once";
    first = {};
    EXPECT_EQ(one->current(MemoryClass::weights), 0) << "who packed them let go";
    EXPECT_EQ(process->current(MemoryClass::weights), bytes) << "rank 2 still has them";
  }
  EXPECT_EQ(two->current(MemoryClass::weights), 0);
  EXPECT_EQ(process->current(MemoryClass::weights), 0);
  EXPECT_EQ(two->peak(MemoryClass::weights), bytes);
}

TEST(WeightStore, RequestsCountWhatOthersHoldAndOnceForAllTheirRanks) {
  using tensor::MemoryClass;
  const ScratchFolder folder;
  const WeightStore store;
  const auto weights = store.open(written(folder));
  const auto load = [&](const std::shared_ptr<tensor::MemoryTracker>& memory) {
    tensor::Scope scope;
    scope.memory = memory;
    const tensor::BindScope bind(scope);
    return weights->matrix("w", 48, 32, DType::f32);
  };
  auto nobody = load(nullptr);
  const int64_t bytes = nobody->bytes();
  for (int i = 0; i < 2; ++i) {
    const auto request = std::make_shared<tensor::MemoryTracker>();
    const auto one = std::make_shared<tensor::MemoryTracker>(request);
    const auto two = std::make_shared<tensor::MemoryTracker>(request);
    auto first = load(one);
    const auto second = load(two), itself = load(request);
    for (const auto& memory : {request, one, two})
      EXPECT_EQ(memory->current(MemoryClass::weights), bytes);
    first.reset();
    EXPECT_EQ(one->current(MemoryClass::weights), 0);
    EXPECT_EQ(request->current(MemoryClass::weights), bytes);
  }
  EXPECT_EQ(store.live(), 1);
  nobody.reset();
  EXPECT_EQ(store.live(), 0);
}

TEST(WeightStore, UploadsOnceForAllWhoOpenTheSameFile) {
  const auto runtime = std::make_shared<tensor::FakeRuntime>();
  tensor::use_device(std::make_shared<tensor::DevicePool>(runtime));
  {
    const ScratchFolder folder;
    const WeightStore store;
    const auto here = store.open(written(folder));
    const auto one = store.open(written(folder), tensor::Device::cuda);
    const auto two = store.open(written(folder), tensor::Device::cuda);
    const ops::Weight w = one->matrix("w", 48, 32, DType::bf16);
    EXPECT_EQ(w->data.device(), tensor::Device::cuda);
    EXPECT_EQ(w->isa, kernels::Isa::reference);
    EXPECT_EQ(w->data.to_floats(),
              kernels::pack_weight(counted({48, 32}), {}, DType::bf16, kernels::Isa::reference)
                  .data.to_floats());
    EXPECT_NE(w, here->matrix("w", 48, 32, DType::bf16));
    const Tensor b = one->vector("b", 48), ids = one->get("ids", {4});
    const ops::ConvWeight filter = one->conv("filter", "filter.bias", {8, 4, 3, 3}, DType::f32);
    const ops::Weight pair = one->paired("w", "u", 48, 32, DType::i8);
    EXPECT_EQ(pair->scales.device(), tensor::Device::cuda);
    EXPECT_EQ(b.to_floats()[47], 47.0f);
    const size_t copies = runtime->copies.size();
    EXPECT_EQ(w, two->matrix("w", 48, 32, DType::bf16));
    EXPECT_EQ(b.raw(), two->vector("b", 48).raw());
    EXPECT_EQ(ids.raw(), two->get("ids", {4}).raw());
    EXPECT_EQ(filter, two->conv("filter", "filter.bias", {8, 4, 3, 3}, DType::f32));
    EXPECT_EQ(pair, two->paired("w", "u", 48, 32, DType::i8));
    EXPECT_EQ(runtime->copies.size(), copies);
  }
  tensor::use_device(nullptr);
  EXPECT_EQ(runtime->used(), 0);
}

TEST(WeightStore, FreesWhatNobodyUses) {
  const ScratchFolder folder;
  const WeightStore store;
  const auto weights = store.open(written(folder));
  {
    const ops::Weight w = weights->matrix("w", 48, 32, DType::f32);
    const Tensor b = weights->vector("b", 48);
    EXPECT_EQ(store.live(), 2);
  }
  EXPECT_EQ(store.live(), 0);
}

TEST(WeightStore, WhatItGaveOutlivesIt) {
  const ScratchFolder folder;
  Tensor kept;
  {
    const WeightStore store;
    kept = store.open(written(folder))->get("w", {48, 32});
  }
  EXPECT_EQ(kept.to_floats()[33], 33.0f);
}

TEST(WeightStore, ThreadsShareOnePacking) {
  const ScratchFolder folder;
  const WeightStore store;
  const auto weights = store.open(written(folder));
  std::vector<ops::Weight> got(8);
  std::vector<std::thread> threads;
  for (auto& w : got) threads.emplace_back([&] { w = weights->matrix("w", 48, 32, DType::bf16); });
  for (auto& thread : threads) thread.join();
  for (const auto& w : got) EXPECT_EQ(w, got.front());
  EXPECT_EQ(store.live(), 1);
}

TEST(WeightStore, ChecksShapesAndTypes) {
  const ScratchFolder folder;
  const WeightStore store;
  const auto weights = store.open(written(folder));
  const std::string shape = model_error([&] { weights->matrix("w", 32, 48, DType::f32); });
  expect_says(shape, "model.safetensors");
  expect_says(shape, "'w' has the shape [48, 32]; expected [32, 48]");
  expect_says(model_error([&] { weights->vector("w", 48); }), "expected [48]");
  expect_says(model_error([&] { weights->get("none", {1}); }), "'none'");
  expect_says(model_error([&] { weights->vector("ids", 4); }), "dtype i64");
  expect_says(model_error([&] { weights->paired("w", "b", 48, 32, DType::f32); }), "'b'");
  expect_says(model_error([&] { weights->conv("filter", "b", {8, 4, 3, 3}, DType::f32); }), "'b'");
  EXPECT_TRUE(weights->has("b"));
  EXPECT_FALSE(weights->has("none"));
}

TEST(WeightStore, SharesFilters) {
  const ScratchFolder folder;
  const WeightStore store;
  const auto weights = store.open(written(folder));
  const auto filter = weights->conv("filter", "filter.bias", {8, 4, 3, 3}, DType::f32);
  EXPECT_EQ(filter, weights->conv("filter", "filter.bias", {8, 4, 3, 3}, DType::f32));
  EXPECT_NE(filter, weights->conv("filter", "", {8, 4, 3, 3}, DType::f32));
}

TEST(WeightStore, SweepsOldSlots) {
  const ScratchFolder folder;
  std::map<std::string, Tensor> many;
  for (int i = 0; i < 700; ++i) many["t" + std::to_string(i)] = counted({2});
  write_safetensors(folder.path("model.safetensors"), many);
  const WeightStore store;
  const auto weights = store.open(open_component(folder.path()));
  const Tensor kept = weights->vector("t0", 2);
  for (const auto& [name, x] : many) weights->vector(name, 2);
  EXPECT_EQ(store.live(), 1);
  EXPECT_EQ(kept.raw(), weights->vector("t0", 2).raw());
}

// A sweep's reads of a slot are ordered after another thread's release; the thread sanitizer
// checks.
TEST(WeightStore, SweepsWhileOthersPack) {
  const ScratchFolder folder;
  std::map<std::string, Tensor> many;
  for (int i = 0; i < 600; ++i) many["t" + std::to_string(i)] = counted({2});
  write_safetensors(folder.path("model.safetensors"), many);
  const WeightStore store;
  const auto weights = store.open(open_component(folder.path()));
  std::vector<std::thread> threads;
  for (int half = 0; half < 2; ++half)
    threads.emplace_back([&, half] {
      for (int i = half; i < 600; i += 2) {
        const Tensor mine = weights->vector("t" + std::to_string(i), 2);
        EXPECT_EQ(mine.data<float>()[1], 1);
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(store.live(), 0);
}

namespace {

// A float matrix, and the same matrix as stored by `quantise`.
TensorSet quantised(const ScratchFolder& folder, const std::map<std::string, Tensor>& others) {
  const ops::StoredMatrix rows = ops::quantise_rows(counted({48, 32}));
  std::map<std::string, Tensor> tensors{
      {"w", counted({48, 32})}, {"q", rows.values}, {"q_scale", rows.scales}};
  for (const auto& [name, x] : others) tensors[name] = x;
  write_safetensors(folder.path("model.safetensors"), tensors);
  return open_component(folder.path());
}

}  // namespace

TEST(WeightStore, PacksWhatIsStoredInInt8AsItIs) {
  const ScratchFolder folder;
  const WeightStore store;
  const auto weights = store.open(quantised(folder, {}));
  const auto same = [](const ops::Weight& a, const ops::Weight& b) {
    return a->data.to_floats() == b->data.to_floats() &&
           a->scales.to_floats() == b->scales.to_floats();
  };
  EXPECT_TRUE(
      same(weights->matrix("q", 48, 32, DType::i8), weights->matrix("w", 48, 32, DType::i8)));
  EXPECT_TRUE(same(weights->paired("q", "q", 48, 32, DType::i8),
                   weights->paired("w", "w", 48, 32, DType::i8)));
  const nn::Cut rows{0, {{8, 16}, {24, 48}}}, columns{1, {{0, 8}, {16, 24}}};
  EXPECT_TRUE(same(weights->matrix("q", 48, 32, DType::i8, rows),
                   weights->matrix("w", 48, 32, DType::i8, rows)));
  const ops::Weight cut = weights->matrix("q", 48, 32, DType::i8, columns),
                    whole = weights->matrix("q", 48, 32, DType::i8);
  EXPECT_EQ(cut->scales.to_floats(), whole->scales.to_floats()) << "those of whole rows";
}

TEST(WeightStore, WhatIsDenseStaysInInt8WhereTheFolderSaysSo) {
  const ScratchFolder folder;
  const WeightStore store;
  TensorSet tensors = quantised(folder, {});
  tensors.hold_dense_in_int8(false);
  const auto weights = store.open(tensors);
  EXPECT_EQ(weights->matrix("w", 48, 32, DType::bf16)->dtype, DType::bf16);
  for (const ops::Weight& w :
       {weights->matrix("q", 48, 32, DType::bf16), weights->paired("q", "w", 48, 32, DType::bf16),
        weights->paired("w", "q", 48, 32, DType::bf16)})
    EXPECT_EQ(w->dtype, DType::i8);
  EXPECT_EQ(weights->matrix("q", 48, 32, DType::bf16), weights->matrix("q", 48, 32, DType::i8));
}

TEST(WeightStore, NamesWhatIsWrongWithWholeNumbers) {
  const ScratchFolder folder;
  const WeightStore store;
  const auto weights =
      store.open(quantised(folder, {{"lone", Tensor::zeros({4, 4}, DType::i8)},
                                    {"short", Tensor::zeros({4, 4}, DType::i8)},
                                    {"short_scale", Tensor::zeros({3}, DType::f32)},
                                    {"half", Tensor::zeros({4, 4}, DType::i8)},
                                    {"half_scale", Tensor::zeros({4}, DType::bf16)}}));
  const auto said = [&](const char* name, int64_t n, int64_t k, DType compute) {
    return model_error([&] { weights->matrix(name, n, k, compute); });
  };
  expect_says(said("q", 48, 32, DType::bf16), "computes with bf16");
  expect_says(said("q", 32, 48, DType::i8), "[48, 32]");
  expect_says(said("lone", 4, 4, DType::i8), "expected f32, bf16 or f16");
  expect_says(said("short", 4, 4, DType::i8), "short_scale");
  expect_says(said("half", 4, 4, DType::i8), "bf16");
}

}  // namespace tessera::load
