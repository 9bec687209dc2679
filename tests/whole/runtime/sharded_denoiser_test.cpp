#include "runtime/sharded_denoiser.h"

#include <gtest/gtest.h>

#include <tuple>

#include "comm/simulated/launch.h"
#include "load/meta_weights.h"
#include "models/named_noise.h"
#include "tessera/error.h"
#include "whole/plans/every_network.h"

// shard=N and the weights around the blocks: memory of ranks at published sizes, and traffic.
namespace tessera::pipeline {
namespace {

constexpr int64_t kLine = 64;  // bytes: where a weight begins

/// Matrices and tables of a network, packed.
struct Pieces {
  int64_t bytes = 0, count = 0;
};

/// Counts them.
class CountingWeights : public load::MetaWeights {
 public:
  explicit CountingWeights(Pieces& pieces) : MetaWeights(DType::f32), pieces_(pieces) {}
  nn::FetchedWeight fetch(const nn::WeightRequest& request) const override {
    nn::FetchedWeight form = MetaWeights::fetch(request);
    if (request.form == Form::matrix) add(form.packed->data);
    if (request.form == Form::table) add(form.tensor);
    return form;
  }

 private:
  void add(const Tensor& x) const {
    pieces_.bytes += (x.bytes() + kLine - 1) / kLine * kLine;
    ++pieces_.count;
  }
  Pieces& pieces_;
};

// The weights around the blocks, as selected by the flags.
Pieces around(const Subject& run, bool all) {
  nn::Portion portion = runtime::shell_of(run.spec().whole());
  portion.head = portion.conditioning = all;
  Pieces pieces;
  (void)run.spec().make(CountingWeights(pieces), portion, DType::bf16);
  return pieces;
}

struct Sent {
  int64_t bytes = 0, messages = 0;
  bool operator==(const Sent&) const = default;
};

// Traffic of all ranks for the weights around the blocks.
Sent sent(const Subject& run, const char* plan, int steps) {
  Sent sum;
  for (const comm::Ledger& ledger :
       run({.plan = plan, .sampler = sample::rectified_flow(steps)}).sent)
    for (const auto& [key, entry] : ledger.entries())
      if (key.first == "weights" && key.second < 0)
        sum.bytes += entry.bytes, sum.messages += entry.messages;
  return sum;
}

class AroundBlocks : public testing::TestWithParam<size_t> {
 protected:
  Subject subject() const { return Subject(kNetworks[GetParam()], DType::bf16); }
};
INSTANTIATE_TEST_SUITE_P(Shard, AroundBlocks, testing::Range<size_t>(0, 6));

// In the first step each matrix is used once; in later steps only matrices without a cached result.
TEST_P(AroundBlocks, ComesOnceForEachUse) {
  const Subject run = subject();
  const Pieces all = around(run, true);
  ASSERT_GT(all.count, 2);
  for (const auto& [plan, ranks, groups] :
       {std::tuple{"shard=2", 2, 1}, {"shard=3", 3, 1}, {"cfg=2,shard=2", 2, 2}}) {
    const Sent once = sent(run, plan, 1), twice = sent(run, plan, 2), thrice = sent(run, plan, 3);
    EXPECT_EQ(once,
              (Sent{groups * (ranks - 1) * all.bytes, groups * ranks * (ranks - 1) * all.count}))
        << run.name << ", " << plan;
    EXPECT_EQ(thrice.bytes - twice.bytes, twice.bytes - once.bytes) << run.name << ", " << plan;
    EXPECT_GT(twice.bytes, once.bytes) << "what a step is computed with";
    EXPECT_LE(twice.bytes - once.bytes, once.bytes) << "what a request begins with came once";
  }
}

// A step's modulation is computed once for all patches, which are embedded separately.
TEST_P(AroundBlocks, PatchesShareWhatAStepTakes) {
  const Subject run = subject();
  const Sent whole = sent(run, "shard=2", 3), patches = sent(run, "shard=2,patches=3", 3);
  EXPECT_GE(patches.bytes, whole.bytes);
  EXPECT_LE(patches.bytes, whole.bytes + 2 * 2 * around(run, false).bytes) << run.name;
}

TEST_P(AroundBlocks, WithoutSomebodyWhoGathersSaysSo) {
  const Subject run = subject();
  const auto network =
      shard_network(run.spec(), parse_plan("shard=2"), run.geometry(), 0, DType::bf16);
  try {
    (void)network->prepare({}, {});
    FAIL() << "weights came from nowhere";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage) << error.what();
  }
}

/// Configurations as they are published.
struct Published {
  const char *type, *config;
  int64_t frames = 0;
};
const Published kPublished[] = {
    {"DiTMoE",
     R"({"model_type": "dit_moe", "hidden_size": 1408, "depth": 40, "num_heads": 16,
         "patch_size": 2, "in_channels": 4, "input_size": 32, "mlp_ratio": 4, "num_experts": 16,
         "num_experts_per_tok": 2, "n_shared_experts": 2, "norm_topk_prob": false,
         "learn_sigma": true, "num_classes": 1000, "attention": "flash", "qk_norm": true,
         "frequency_embedding_size": 256})"},
    {"PixArtTransformer2DModel",
     R"({"num_attention_heads": 16, "attention_head_dim": 72, "num_layers": 28, "patch_size": 2,
         "sample_size": 128, "cross_attention_dim": 1152, "caption_channels": 4096,
         "in_channels": 4, "out_channels": 8, "interpolation_scale": 2,
         "use_additional_conditions": true})"},
    {"SD3Transformer2DModel",
     R"({"num_attention_heads": 24, "attention_head_dim": 64, "num_layers": 24, "in_channels": 16,
         "out_channels": 16, "caption_projection_dim": 1536, "joint_attention_dim": 4096,
         "pooled_projection_dim": 2048, "pos_embed_max_size": 192, "sample_size": 128,
         "patch_size": 2})"},
    {"FluxTransformer2DModel",
     R"({"num_attention_heads": 24, "attention_head_dim": 128, "num_layers": 19,
         "num_single_layers": 38, "in_channels": 64, "joint_attention_dim": 4096,
         "pooled_projection_dim": 768, "axes_dims_rope": [16, 56, 56], "guidance_embeds": true})"},
    {"HunyuanDiT2DModel",
     R"({"num_attention_heads": 16, "attention_head_dim": 88, "num_layers": 40, "in_channels": 4,
         "patch_size": 2, "sample_size": 128, "cross_attention_dim": 1024,
         "cross_attention_dim_t5": 2048, "pooled_projection_dim": 1024, "text_len": 77,
         "text_len_t5": 256, "mlp_ratio": 4.3637, "use_style_cond_and_image_meta_size": true})"},
    {"CogVideoXTransformer3DModel",
     R"({"num_attention_heads": 48, "attention_head_dim": 64, "num_layers": 42, "in_channels": 16,
         "out_channels": 16, "time_embed_dim": 512, "text_embed_dim": 4096, "patch_size": 2,
         "sample_width": 90, "sample_height": 60, "sample_frames": 49,
         "use_rotary_positional_embeddings": true})",
     4},
};

/// A rank's weights, in bytes.
struct Held {
  int64_t loading = 0;  ///< the peak
  int64_t kept = 0;     ///< between blocks
  int64_t passing = 0;  ///< the most of a run besides
};

// Each rank's bytes in a step of small images on meta, an image per rank.
std::vector<Held> held(const models::PipelineSpec& spec, const nn::Geometry& geometry, int ranks,
                       DType stored) {
  const Plan plan = parse_plan("shard=" + std::to_string(ranks));
  const nn::TokenLayout layout = spec.layout(0, 0, 0);
  const parallel::Workload work{
      .samples = ranks, .grid = layout.grid(), .prefix = spec.prefix(spec.example(1))};
  std::vector<tensor::Scope> scopes(static_cast<size_t>(ranks));
  for (tensor::Scope& scope : scopes) scope.memory = std::make_shared<tensor::MemoryTracker>();
  std::vector<Held> all(scopes.size());
  comm::simulated::run(scopes, std::chrono::seconds(60), [&](comm::Communicator& world) {
    Held& mine = all[static_cast<size_t>(world.rank())];
    tensor::Scope loading = tensor::current_scope();
    loading.memory = std::make_shared<tensor::MemoryTracker>();
    const auto network = [&] {
      const tensor::BindScope bound(loading);
      const auto meta = std::make_shared<load::MetaWeights>(stored);
      return runtime::ShardedDenoiser(spec, meta, *meta, DType::bf16, spec.whole(),
                                      {world.rank(), ranks}, tensor::Device::meta);
    }();
    mine.loading = loading.memory->peak();
    mine.kept = loading.memory->current();
    parallel::Setup setup(plan, geometry, work, &world, {tensor::Device::meta});
    const Tensor latent =
        Tensor::empty({layout.tokens(), layout.token_channels()}, DType::f32, tensor::Device::meta);
    parallel::denoise(network, spec.example(1), *sample::rectified_flow(2),
                      {1, spec.guided_channels, spec.guided_channels}, latent,
                      [](int) { return Tensor(); }, setup, {});
    const auto& run = *tensor::current_scope().memory;
    mine.passing = run.peak(tensor::MemoryClass::weights) + run.peak(tensor::MemoryClass::buffers);
  });
  return all;
}

// Bytes of a network on a single rank.
int64_t whole(const models::PipelineSpec& spec, DType stored) {
  tensor::Scope scope;
  scope.memory = std::make_shared<tensor::MemoryTracker>();
  const tensor::BindScope bound(scope);
  const auto network = spec.make(load::MetaWeights(stored), spec.whole(), DType::bf16);
  return scope.memory->current(tensor::MemoryClass::weights);
}

class PublishedNetwork : public testing::TestWithParam<size_t> {};
INSTANTIATE_TEST_SUITE_P(Shard, PublishedNetwork, testing::Range<size_t>(0, 6));

TEST_P(PublishedNetwork, HoldsItsPartOfAllWeightsAndTwoBlocks) {
  const Published& published = kPublished[GetParam()];
  const auto spec =
      models::pipeline_of(published.type, {base::Json::parse(published.config), "config.json"});
  const nn::Geometry geometry =
      spec.make(load::MetaWeights(), spec.whole(), DType::bf16)->geometry();
  const int64_t block = runtime::part_weights(spec, DType::bf16).largest(0);
  for (const DType stored : {DType::bf16, DType::f32})
    for (const int ranks : {2, 4, 8}) {
      const int64_t all = whole(spec, stored), allowed = all / ranks + 2 * block;
      for (const Held& rank : held(spec, geometry, ranks, stored)) {
        EXPECT_LE(rank.kept + rank.passing, allowed)
            << published.type << " on " << ranks << ": keeps " << rank.kept;
        EXPECT_LE(rank.loading, allowed) << published.type << " on " << ranks;
        EXPECT_GE(rank.kept, all / ranks * 99 / 100) << published.type << " on " << ranks;
      }
    }
}

}  // namespace
}  // namespace tessera::pipeline
