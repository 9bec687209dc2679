// One forward pass of a transformer of the dense families at full width with few blocks and random
// weights: one row, bf16; what a request computes once (texts) is not in it.
//   families_bench [threads] [family:tokens] [times] [--device cpu|cuda] [--turns]
// Families: pixart, sd3, flux, hunyuan, cogvideox; tokens: of the latent, a square number (of
// cogvideox 1024 a frame). Prints a JSON line: milliseconds and the share of the units' own limit.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>

#include "bench.h"
#include "models/random_weights.h"
#include "models/registry.h"
#include "nn/local.h"
#include "nn/moe/moe_layers.h"
#include "place.h"

using namespace tessera;
using tensor::DType;
using tensor::Tensor;

namespace {

struct Family {
  const char *name, *type, *config;
};
// Published widths; depths as in peers/families_peer.py.
constexpr Family kFamilies[] = {
    {"pixart", "PixArtTransformer2DModel",
     R"({"num_attention_heads": 16, "attention_head_dim": 72, "num_layers": 3, "in_channels": 4,
         "out_channels": 8, "cross_attention_dim": 1152, "caption_channels": 4096,
         "sample_size": 64, "use_additional_conditions": false})"},
    {"sd3", "SD3Transformer2DModel",
     R"({"num_attention_heads": 24, "attention_head_dim": 64, "num_layers": 3,
         "caption_projection_dim": 1536, "joint_attention_dim": 4096,
         "pooled_projection_dim": 2048, "pos_embed_max_size": 96})"},
    {"flux", "FluxTransformer2DModel",
     R"({"num_attention_heads": 24, "attention_head_dim": 128, "num_layers": 1,
         "num_single_layers": 2, "joint_attention_dim": 4096, "pooled_projection_dim": 768,
         "guidance_embeds": true, "axes_dims_rope": [16, 56, 56]})"},
    {"hunyuan", "HunyuanDiT2DModel",
     R"({"num_attention_heads": 16, "attention_head_dim": 88, "num_layers": 4,
         "mlp_ratio": 4.3637, "cross_attention_dim": 1024, "cross_attention_dim_t5": 2048,
         "pooled_projection_dim": 1024, "text_len": 77, "text_len_t5": 256,
         "use_style_cond_and_image_meta_size": false})"},
    {"cogvideox", "CogVideoXTransformer3DModel",
     R"({"num_attention_heads": 30, "attention_head_dim": 64, "num_layers": 3,
         "text_embed_dim": 4096, "time_embed_dim": 512, "max_text_seq_length": 226,
         "use_rotary_positional_embeddings": false, "sample_width": 64, "sample_height": 64})"},
};

const Family& family_of(const std::string& name) {
  for (const Family& family : kFamilies)
    if (name == family.name) return family;
  std::fprintf(stderr, "families_bench: no family '%s'\n", name.c_str());
  std::exit(2);
}

/// Values of the shapes that a spec gives as an example.
nn::Conditioning filled(const nn::Conditioning& example, const bench::Place& place) {
  nn::Conditioning c;
  for (const auto& [name, x] : example.tensors)
    c.tensors[name] =
        place(x.dtype() == DType::i32 ? Tensor::zeros(x.shape(), DType::i32)
                                      : bench::random_tensor(x.shape(), DType::f32, 3));
  return c;
}

nn::TokenLayout layout_of(const models::PipelineSpec& spec, const std::string& name,
                          int64_t tokens) {
  const bool video = name == "cogvideox";
  const auto side = static_cast<int64_t>(std::lround(std::sqrt(double(video ? 1024 : tokens))));
  return spec.layout(2 * side, 2 * side, video ? tokens / 1024 : 0);
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Place place(argc, argv);
  const bench::Threads threads(argc, argv);
  const std::string shape = argc > 2 ? argv[2] : "pixart:1024";
  const int times = argc > 3 ? std::atoi(argv[3]) : 3;
  const std::string name = shape.substr(0, shape.find(':'));
  const int64_t tokens = std::atol(shape.c_str() + std::min(shape.size(), name.size() + 1));
  const Family& family = family_of(name);
  const auto spec = models::pipeline_of(family.type, {base::Json::parse(family.config), name});
  const auto model = spec.make(bench::RandomWeights(place.device), spec.whole(), DType::bf16);
  const nn::TokenLayout layout = layout_of(spec, name, tokens);
  const nn::Conditioning conditioning = filled(spec.example(1), place);
  const nn::TokenShape rows{1, spec.prefix(conditioning), layout.grid()};
  nn::TokenView view;
  view.sequences = {0};
  if (rows.prefix > 0) view.prefix = {{0, {-rows.prefix, 0}}};
  view.body = {{0, {0, rows.tokens()}}};
  const Tensor latent =
      place(bench::random_tensor({rows.tokens(), layout.token_channels()}, DType::f32, 5));
  const float when[] = {500};
  const Tensor t = place(Tensor::from(std::span<const float>(when), {1}));
  const auto context = model->prepare(conditioning, rows);
  const auto placement = model->place(*context, view);
  auto run = [&] {
    nn::LocalAttention attention(model->geometry());
    nn::MoeLayers experts;
    const auto step = model->at(*context, t);
    nn::Hidden hidden = model->embed(*placement, latent);
    for (int b = 0; b < model->geometry().blocks; ++b)
      model->block(b, *step, *placement, hidden, {attention, experts});
    model->head(*step, *placement, hidden);
  };
  if (place.on_gpu() || place.turns)
    place.measure("family bf16", shape, times, run, 1);
  else
    bench::print_best("family bf16", shape, times, run);
}
