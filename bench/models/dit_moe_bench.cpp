// A forward pass of a DiT-MoE with random weights: two rows (guidance) of 256 tokens, bf16.
//   dit_moe_bench [threads] [size[:tokens[:blocks]], size: s, b, l, xl] [times] [--device cpu|cuda]
//                 [--turns]
// Prints a JSON line: milliseconds and the share of the unit's limit, probed between the runs.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "bench.h"
#include "models/dit_moe.h"
#include "models/dit_moe_pipeline.h"
#include "models/published_models.h"
#include "models/random_weights.h"
#include "nn/local.h"
#include "nn/moe/moe_layers.h"
#include "place.h"

using namespace tessera;
using tensor::DType;
using tensor::Tensor;

namespace {

constexpr int kRows = 2;

models::DitMoeConfig config_of(const std::string& size) {
  if (const auto* model = models::published_model("dit_moe_" + size))
    return models::parse_dit_moe_config(
        model->description.at("parts").at("transformer").at("config"), model->name);
  std::fprintf(stderr, "dit_moe_bench: no size '%s'; give s, b, l or xl\n", size.c_str());
  std::exit(2);
}

nn::TokenView whole(const nn::TokenShape& shape) {
  nn::TokenView view;
  for (int row = 0; row < kRows; ++row) {
    view.sequences.push_back(row);
    view.body.push_back({row, {0, shape.tokens()}});
  }
  return view;
}

// Computes a step; the classes are read once for each request.
Tensor forward(const models::DitMoe& model, const nn::ContextPtr& context,
               const nn::PlacementPtr& placement, const Tensor& latent, const Tensor& times) {
  nn::LocalAttention attention(model.geometry());
  nn::MoeLayers experts;
  const auto step = model.at(*context, times);
  nn::Hidden hidden = model.embed(*placement, latent);
  for (int b = 0; b < model.geometry().blocks; ++b)
    model.block(b, *step, *placement, hidden, {attention, experts});
  return model.head(*step, *placement, hidden);
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Place place(argc, argv);
  const bench::Threads threads(argc, argv);
  const std::string shape_word = argc > 2 ? argv[2] : "s";
  const std::string size = shape_word.substr(0, shape_word.find(':'));
  long tokens = 0, blocks = 0;
  std::sscanf(shape_word.c_str() + size.size(), ":%ld:%ld", &tokens, &blocks);
  const int times = argc > 3 ? std::atoi(argv[3]) : 3;
  models::DitMoeConfig config = config_of(size);
  if (tokens > 0)
    config.input_size = config.patch_size * std::lround(std::sqrt(static_cast<double>(tokens)));
  if (blocks > 0) config.depth = static_cast<int>(blocks);
  const int64_t side = config.input_size / config.patch_size;
  const nn::TokenShape shape{kRows, 0, {1, side, side}};
  const models::DitMoe model(config, bench::RandomWeights(place.device),
                             {{0, config.depth}, true, true}, DType::bf16);
  const int64_t channels = config.in_channels * config.patch_size * config.patch_size;
  const Tensor latent =
      place(bench::random_tensor({kRows * shape.tokens(), channels}, DType::f32, 5));
  const int32_t classes[] = {1, 1000};
  const float when[] = {0.5f, 0.5f};
  nn::Conditioning conditioning;
  conditioning.tensors["y"] = place(Tensor::from(std::span<const int32_t>(classes), {kRows}));
  const Tensor t = place(Tensor::from(std::span<const float>(when), {kRows}));
  const auto context = model.prepare(conditioning, shape);
  const auto placement = model.place(*context, whole(shape));
  auto run = [&] { forward(model, context, placement, latent, t); };
  if (place.on_gpu() || place.turns)
    place.measure("dit_moe bf16", shape_word, times, run, 1);
  else
    bench::print_best("dit_moe bf16", shape_word, times, run);
}
