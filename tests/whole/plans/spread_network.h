#pragma once

#include <memory>

#include "load/meta_weights.h"
#include "models/named_noise.h"
#include "parallel/setup.h"
#include "runtime/sharded_denoiser.h"

namespace tessera {

/// Builds a rank's network of a plan with shard= from named noise as weights.
inline std::unique_ptr<nn::Denoiser> shard_network(const models::PipelineSpec& spec,
                                                   const Plan& plan, const nn::Geometry& geometry,
                                                   int rank, tensor::DType dtype) {
  const nn::Portion mine = parallel::portion_of(plan, geometry, rank);
  const nn::Shard kept{parallel::mesh_of(plan).coordinate(rank, "shard"), plan.shard};
  const models::NamedNoise weights;
  return std::make_unique<runtime::ShardedDenoiser>(
      spec, std::make_shared<load::MetaWeights>(tensor::DType::f32), weights, dtype, mine, kept,
      tensor::Device::cpu);
}

}  // namespace tessera
