#include "runtime/loading_denoiser.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <thread>
#include <vector>

#include "load/meta_weights.h"
#include "parallel/denoise.h"
#include "runtime/model_state.h"
#include "tensor/scope.h"
#include "test_paths.h"
#include "whole/golden.h"

namespace tessera::loading {
namespace {

using tensor::DType;
using tensor::Tensor;

constexpr const char* kFamilies[][2] = {
    {"PixArtTransformer2DModel", "diffusers/pixart_alpha/model/transformer"},
    {"FluxTransformer2DModel", "diffusers/flux_dev/model/transformer"},
    {"HunyuanDiT2DModel", "diffusers/hunyuandit_v11/model/transformer"},
    {"dit_moe", "moe/dit_moe_flash/model"},
};

// Numbers with a long period; integers are zero.
Tensor filled(const tensor::Shape& shape, DType dtype) {
  Tensor x = Tensor::zeros(shape, dtype);
  if (dtype == DType::f32)
    for (int64_t i = 0; i < x.elements(); ++i)
      x.data<float>()[i] = static_cast<float>(i * 37 % 101 - 50) / 50;
  return x;
}

/// A family's files, with a store of its own.
struct Family {
  load::TensorSet tensors;
  load::WeightStore store;
  models::PipelineSpec spec;
  nn::Conditioning conditioning;

  explicit Family(const char* type, const std::string& folder)
      : tensors(load::open_component(folder)) {
    spec = models::pipeline_of(type, {base::read_json(folder + "/config.json"), folder});
    for (const auto& [name, x] : spec.example(2).tensors)
      conditioning.tensors[name] = filled(x.shape(), x.dtype());
  }
  std::vector<float> run(const nn::Denoiser& model) const {
    const bool fixed = spec.classes > 0;
    const nn::TokenLayout layout = spec.layout(fixed ? 0 : 4, fixed ? 0 : 6, 0);
    parallel::Setup setup({}, model.geometry(),
                          {2, layout.grid(), 1, 1, spec.prefix(conditioning)});
    const float times[] = {500, 20};
    return parallel::forward(model, conditioning, Tensor::from(std::span<const float>(times), {2}),
                             filled({2 * layout.tokens(), layout.token_channels()}, DType::f32),
                             setup, {})
        .to_floats();
  }
  runtime::LoadingDenoiser loading(DType dtype) const {
    return {spec, store.open(tensors), load::MetaWeights(tensors), dtype, spec.whole()};
  }
};

int64_t weights_in(const tensor::MemoryTracker& memory) {
  return memory.current(tensor::MemoryClass::weights);
}

TEST(LoadingDenoiser, ComputesAndCountsWhatTheWholeTransformerDoes) {
  for (const auto& [type, folder] : kFamilies) {
    const Family family(type, std::string(TESSERA_TEST_DATA "/") + folder);
    for (const DType dtype : {DType::f32, DType::bf16}) {
      tensor::Scope counting;
      counting.memory = std::make_shared<tensor::MemoryTracker>();
      std::vector<float> want;
      int64_t whole_bytes = 0;
      {
        const tensor::BindScope bind(counting);
        const auto whole =
            family.spec.make(*family.store.open(family.tensors), family.spec.whole(), dtype);
        whole_bytes = weights_in(*counting.memory);
        want = family.run(*whole);
      }
      counting.memory = std::make_shared<tensor::MemoryTracker>();
      {
        const tensor::BindScope bind(counting);
        const runtime::LoadingDenoiser loading = family.loading(dtype);
        const int64_t at_start = family.store.live();
        EXPECT_EQ(weights_in(*counting.memory), whole_bytes) << type << ": before they are read";
        tensor::Scope request;  // a step's own memory has none of the blocks
        request.memory = std::make_shared<tensor::MemoryTracker>();
        {
          const tensor::BindScope step(request);
          EXPECT_EQ(family.run(loading), want) << type;
          EXPECT_GT(family.store.live(), at_start) << "blocks came with the step";
          const double loaded = loading.loading_seconds();
          EXPECT_GT(loaded, 0);
          EXPECT_EQ(family.run(loading), want) << type << ", again";
          EXPECT_EQ(loading.loading_seconds(), loaded);
        }
        EXPECT_EQ(weights_in(*request.memory), 0) << type;
        EXPECT_EQ(weights_in(*counting.memory), whole_bytes) << type;
        EXPECT_EQ(counting.memory->peak(tensor::MemoryClass::weights), whole_bytes) << type;
      }
      EXPECT_EQ(counting.memory->current(), 0) << type;
      EXPECT_EQ(family.store.live(), 0) << type;
    }
  }
}

TEST(LoadingDenoiser, RequestsAtOnceLoadEachBlockOnce) {
  const Family family(kFamilies[0][0], std::string(TESSERA_TEST_DATA "/") + kFamilies[0][1]);
  const runtime::LoadingDenoiser loading = family.loading(DType::bf16);
  const std::vector<float> want = family.run(family.loading(DType::bf16));
  std::vector<std::vector<float>> got(4);
  {
    std::vector<std::jthread> requests;
    for (auto& result : got) requests.emplace_back([&] { result = family.run(loading); });
  }
  for (const auto& result : got) EXPECT_EQ(result, want);
}

TEST(LoadingDenoiser, AllBlocksLoadAtOnceToo) {
  const Family family(kFamilies[0][0], std::string(TESSERA_TEST_DATA "/") + kFamilies[0][1]);
  const auto loading = std::make_shared<const runtime::LoadingDenoiser>(
      family.spec, family.store.open(family.tensors), load::MetaWeights(family.tensors),
      DType::bf16, family.spec.whole());
  const int64_t shell = family.store.live();
  EXPECT_EQ(runtime::with_all_blocks(loading), loading);
  EXPECT_GT(family.store.live(), shell);
  const double seconds = loading->loading_seconds();
  (void)family.run(*loading);
  EXPECT_EQ(loading->loading_seconds(), seconds) << "nothing is left to a step";
}

// A step that fails loads again, and unread blocks leave the count.
TEST(LoadingDenoiser, AFileThatChangesIsAnErrorOfTheStep) {
  const golden::Scratch scratch;
  std::filesystem::copy(std::string(TESSERA_TEST_DATA "/") + kFamilies[0][1], scratch / "m");
  const Family family(kFamilies[0][0], scratch / "m");
  tensor::Scope counting;
  counting.memory = std::make_shared<tensor::MemoryTracker>();
  {
    const tensor::BindScope bind(counting);
    const runtime::LoadingDenoiser loading = family.loading(DType::bf16);
    for (const auto& file : family.tensors.files())
      std::filesystem::resize_file(file.path(), std::filesystem::file_size(file.path()) / 2);
    for (int step = 0; step < 2; ++step) EXPECT_THROW(family.run(loading), Error);
  }
  EXPECT_EQ(counting.memory->current(), 0);
}

}  // namespace
}  // namespace tessera::loading
