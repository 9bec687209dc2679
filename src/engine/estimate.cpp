#include "engine/model_state.h"
#include "load/meta_weights.h"
#include "nn/local_spatial.h"
#include "parallel/denoise.h"

namespace tessera::engine {
namespace {

using tensor::Device;
using tensor::DType;
using tensor::Tensor;

nn::Conditioning meta_labels(int64_t rows) {
  nn::Conditioning conditioning;
  conditioning.tensors["y"] = Tensor::empty({rows}, DType::i32, Device::meta);
  return conditioning;
}

}  // namespace

Estimate estimate(const models::Recipe& recipe, nn::DType dtype, const nn::TokenLayout& layout,
                  int pictures, bool branches, const base::Json* vae) {
  tensor::Scope scope;
  scope.memory = std::make_shared<tensor::MemoryTracker>();
  scope.meter = std::make_shared<tensor::Meter>();
  const tensor::BindScope bind(scope);
  Estimate result;
  const load::MetaWeights weights;
  const auto model = recipe.make(weights, {{0, recipe.blocks()}, true, true}, dtype);
  result.parameters = weights.parameters();
  result.weights = scope.memory->current(tensor::MemoryClass::weights);
  const nn::TokenShape shape{branches ? 2 * pictures : pictures, 0, layout.grid()};
  parallel::Assembly assembly = parallel::assemble(model->geometry(), {});
  parallel::forward(*model, meta_labels(shape.rows), shape,
                    Tensor::empty({shape.rows}, DType::f32, Device::meta),
                    Tensor::empty({shape.rows * layout.tokens(), layout.token_channels()}, DType::f32,
                                  Device::meta),
                    assembly, {});
  result.flops_per_step = scope.meter->total().flops;
  if (vae) {
    const load::MetaWeights vae_weights;
    const models::AutoencoderKL decoder(models::parse_autoencoder_kl_config(*vae, "vae/config.json"),
                                        vae_weights, dtype);
    nn::LocalSpatial spatial;
    decoder.decode(Tensor::empty({1, layout.channels, layout.size[1], layout.size[2]}, DType::f32,
                                 Device::meta),
                   spatial);
  }
  result.activations = scope.memory->peak(tensor::MemoryClass::activations);
  result.peak = scope.memory->peak();
  return result;
}

}  // namespace tessera::engine
