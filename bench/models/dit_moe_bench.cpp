// One forward pass of a DiT-MoE with random weights: two rows (guidance) of 256 tokens, bf16.
//   dit_moe_bench [threads] [size: s, b] [times]
// Prints a JSON line: milliseconds and the share of the units' own limit, probed between the runs.
#include <cstdlib>
#include <string>

#include "bench.h"
#include "models/dit_moe.h"
#include "models/dit_moe_recipe.h"
#include "models/random_weights.h"
#include "nn/local.h"

using namespace tessera;
using tensor::DType;
using tensor::Tensor;

namespace {

constexpr int kRows = 2;

models::DitMoeConfig config_of(const std::string& size) {
  for (const auto& [name, config] : models::dit_moe_sizes())
    if (name == "dit_moe_" + size) return models::parse_dit_moe_config(config, name);
  std::fprintf(stderr, "dit_moe_bench: no size '%s'; give s or b\n", size.c_str());
  std::exit(2);
}

Tensor forward(const models::DitMoe& model, const nn::TokenShape& shape, const Tensor& latent,
               const Tensor& labels, const Tensor& times) {
  nn::LocalAttention attention(model.geometry());
  nn::LocalExperts experts;
  nn::TokenView view;
  for (int row = 0; row < kRows; ++row) {
    view.rows.push_back(row);
    view.body.push_back({row, {0, shape.tokens()}});
  }
  nn::Conditioning conditioning;
  conditioning.tensors["y"] = labels;
  const auto context = model.prepare(conditioning, shape);
  const auto step = model.at(*context, times);
  nn::Hidden hidden = model.embed(*step, latent, view);
  for (int b = 0; b < model.geometry().blocks; ++b)
    model.block(b, *step, view, hidden, {attention, experts});
  return model.head(*step, view, hidden);
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Threads threads(argc, argv);
  const std::string size = argc > 2 ? argv[2] : "s";
  const int times = argc > 3 ? std::atoi(argv[3]) : 3;
  const models::DitMoeConfig config = config_of(size);
  const int64_t side = config.input_size / config.patch_size;
  const nn::TokenShape shape{kRows, 0, {1, side, side}};
  const models::DitMoe model(config, bench::RandomWeights(), {{0, config.depth}, true, true},
                             DType::bf16);
  const int64_t channels = config.in_channels * config.patch_size * config.patch_size;
  const Tensor latent = bench::random_tensor({kRows * shape.tokens(), channels}, DType::f32, 5);
  const int32_t classes[] = {1, 1000};
  const float when[] = {0.5f, 0.5f};
  const Tensor labels = Tensor::from(std::span<const int32_t>(classes), {kRows});
  const Tensor t = Tensor::from(std::span<const float>(when), {kRows});
  auto run = [&] { forward(model, shape, latent, labels, t); };
  bench::print_best("dit_moe bf16", size, times, run);
}
