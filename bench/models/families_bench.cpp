// A forward pass of a dense transformer family at full width with few blocks and random weights:
// a single row, bf16, without work done once for each request (texts).
//   families_bench [threads] [family:tokens] [times] [--device cpu|cuda] [--turns]
// Families: pixart, sd3, flux, hunyuan, cogvideox, klein, z_image; tokens: of the latent, a square
// number (for cogvideox 1024 a frame). Prints a JSON line: milliseconds and the share of the unit's
// limit.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>

#include "bench.h"
#include "models/families.h"
#include "models/random_weights.h"
#include "models/registry.h"
#include "nn/local.h"
#include "nn/moe/moe_layers.h"
#include "place.h"

using namespace tessera;
using tensor::DType;
using tensor::Tensor;

int main(int argc, char** argv) {
  const bench::Place place(argc, argv);
  const bench::Threads threads(argc, argv);
  const std::string shape = argc > 2 ? argv[2] : "pixart:1024";
  const int times = argc > 3 ? std::atoi(argv[3]) : 3;
  const std::string name = shape.substr(0, shape.find(':'));
  const int64_t tokens = std::atol(shape.c_str() + std::min(shape.size(), name.size() + 1));
  const bench::Family& family = bench::family_of(name);
  const auto spec = models::pipeline_of(family.type, {base::Json::parse(family.config), name});
  const auto model = spec.make(bench::RandomWeights(place.device), spec.whole(), DType::bf16);
  const nn::TokenLayout layout = bench::layout_of(spec, name, tokens);
  const nn::Conditioning conditioning = bench::filled(spec.example(1), place);
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
