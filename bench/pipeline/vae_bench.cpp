#include <memory>
#include <string>
#include <utility>

#include "bench.h"
#include "load/quantisation.h"
#include "models/random_weights.h"
#include "models/vae/autoencoder_kl.h"
#include "nn/local_spatial.h"
#include "place.h"

// Decodes an image with the sizes of Stable Diffusion's VAE and random weights:
//   vae_bench [threads] [shape: 512x512-bf16, -f32, or -int8 (residual blocks), ...] [times]
//   [--device cpu|cuda]
//   [--turns]
// Prints a JSON line.

namespace tessera {
namespace {

using bench::RandomWeights;
using tensor::DType;
using tensor::Tensor;

int run(int argc, char** argv) {
  const bench::Place place(argc, argv);
  const auto memory = std::make_shared<tensor::MemoryTracker>();
  const bench::Threads threads(argc, argv, memory);
  const std::string shape = argc > 2 ? argv[2] : "512x512-bf16";
  const int times = argc > 3 ? std::atoi(argv[3]) : 2;
  int64_t height = 0, width = 0;
  if (std::sscanf(shape.c_str(), "%ldx%ld", &height, &width) != 2 || height % 8 || width % 8)
    return std::fputs("vae_bench: give a shape like 512x512-bf16\n", stderr), 2;
  const DType dtype = shape.ends_with("f32") ? DType::f32 : DType::bf16;
  models::AutoencoderKLConfig config;
  config.block_out_channels = {128, 256, 512, 512};
  config.layers_per_block = 2;
  std::shared_ptr<const nn::Weights> weights = std::make_shared<RandomWeights>(place.device);
  if (shape.ends_with("int8")) weights = load::with_int8_filters(std::move(weights));
  const models::AutoencoderKL vae(config, *weights, dtype);
  nn::LocalSpatial spatial;
  const Tensor latents = RandomWeights(place.device).get("", {1, 4, height / 8, width / 8});
  if (place.on_gpu() || place.turns)
    return place.measure(
               "vae_decode", shape, times, [&] { vae.decode(latents, spatial); }, 1),
           0;
  vae.decode(latents, spatial);  // warm-up
  const double best = kernels::best_seconds([&] { vae.decode(latents, spatial); }, times);
  const double mb = 1 << 20;
  std::puts(fmt::format("{{\"bench\":\"vae_decode\",\"shape\":\"{}\",\"threads\":{},\"ms\":{:.1f},"
                        "\"activation_mb\":{:.1f},\"weight_mb\":{:.1f}}}",
                        shape, tensor::thread_count(), best * 1e3,
                        static_cast<double>(memory->peak(tensor::MemoryClass::activations)) / mb,
                        static_cast<double>(memory->peak(tensor::MemoryClass::weights)) / mb)
                .c_str());
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) { return tessera::run(argc, argv); }
